"""Every touch of what Opacus and torch do not document, checked against the versions named here.

The rest of this folder uses the private optimizer and data loader by their documented attributes. When Opacus
changes, read this file again, with `_samplers.py`, `_hooks.py` and `_programs.py`.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FunctionType, MethodType, MethodWrapperType
from typing import Any, Final, TypeAlias

import torch
from opacus.accountants.accountant import IAccountant
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleHooksFastGradientClipping
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DistributedDPOptimizer,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    DPPerLayerOptimizer,
)
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import DistributedDPOptimizerFastGradientClipping
from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import FSDPOptimizerFastGradientClipping
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, placement_types
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

CHECKED: Final = {"opacus": ("1.6.0",), "torch": ("2.13.0",)}
"""The versions with which this file was read and tested."""
CLIP: Final = "clip_and_accumulate"
"""The method of an optimizer that clips the gradients of a batch and adds them to the clipped sum."""
_CLIP_FLAT, _CLIP_APART = DPOptimizer.clip_and_accumulate, DPPerLayerOptimizer.clip_and_accumulate
"""Opacus' own, as they were imported: programs put others in their places."""
ADD_NOISE: Final = "add_noise"
"""The method of an optimizer that adds noise to the clipped sum."""
CLIPPED_SUM: Final = "summed_grad"
"""The attribute of a parameter that holds the sum of clipped gradients, before noise."""
GRADIENT: Final = "grad"
"""The attribute that holds what the wrapped optimizer will use."""
CALLS: Final = "canaria_calls"
"""The attribute of a method that an audit put in another one's place which holds that one."""
_GRADIENTS: Final = (GRADIENT, "grad_sample", CLIPPED_SUM)
"""Where a parameter holds gradients: as torch leaves them, of each row, clipped and added up."""
_ADAPTED: Final = ("max_grad_norm", "noise_multiplier", "_adjusted_noise_multiplier")
"""What adaptive clipping changes, of optimizer and model."""
copy_each: Final = torch._foreach_copy_
"""Copies tensors, the second into the first, in one call."""
add_each: Final = torch._foreach_add_
"""Adds `alpha` times tensors, the second to the first, in one call."""
_SLACK: Final = 1e-6
"""Opacus divides the clip norm by a norm so much larger."""

GhostClipper: TypeAlias = GradSampleHooksFastGradientClipping
_DISTRIBUTED: Final = (DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping)


def _running(optimizer: DPOptimizer, method: str) -> Any:
    """A method as the program has it, without what an audit put before it."""
    own = getattr(optimizer, method)
    return getattr(own, CALLS, own)


def clips_as_opacus(optimizer: DPOptimizer) -> bool:
    """Whether the clipper that runs is Opacus' own, so that `clipping_factors` are what it multiplies by."""
    return getattr(_running(optimizer, CLIP), "__func__", None) in (_CLIP_FLAT, _CLIP_APART)


def clips_flat(optimizer: DPOptimizer) -> bool:
    """Whether every gradient is clipped as a whole, to one fixed norm."""
    adapted = isinstance(optimizer, AdaClipDPOptimizer | DPPerLayerOptimizer)
    return not adapted and isinstance(optimizer.max_grad_norm, int | float)


def layer_norms(optimizer: DPOptimizer) -> list[float]:
    """The norm to which each parameter is clipped by itself; none where gradients are clipped as a whole."""
    return list(map(float, optimizer.max_grad_norms)) if isinstance(optimizer, DPPerLayerOptimizer) else []


def clip_norm_of(optimizer: DPOptimizer, clippers: Sequence[GhostClipper] = ()) -> float:
    """The most that a row can weigh in `CLIPPED_SUM`, which is an average over processes if sharded.

    By ghost it is the model that clips, and may have another norm than the optimizer, which adds the noise.
    """
    if isinstance(optimizer, DPPerLayerOptimizer):
        return math.hypot(*layer_norms(optimizer))
    norm = max([float(owner.max_grad_norm) for owner in (optimizer, *clippers)])
    return norm / torch.distributed.get_world_size() if is_sharded(optimizer) else norm


def clippers_of(optimizer: DPOptimizer, made: Sequence[object]) -> list[GhostClipper]:
    """The parts of models that clip the optimizer's gradients by ghost; none where the optimizer clips."""
    models = [one for one in made if isinstance(one, nn.Module)]
    parts = list(itertools.chain(made, *(model.modules() for model in models)))
    trained = {id(parameter) for parameter in optimizer.params}
    return [
        part
        for part in parts
        if isinstance(part, GradSampleHooksFastGradientClipping)
        and any(id(parameter) in trained for parameter in part._module.parameters())
    ]


def sum_waits(optimizer: DPOptimizer) -> bool:
    """Whether clipped gradients wait for their noise."""
    first = optimizer.params[0]
    held = optimizer.grad_state[first] if is_sharded(optimizer) else vars(first)
    return held.get(CLIPPED_SUM) is not None


def clips_by_ghost(optimizer: DPOptimizer) -> bool:
    """Whether there are no per-sample gradients: norms are found without them."""
    return isinstance(optimizer, DPOptimizerFastGradientClipping)


def is_together(optimizer: DPOptimizer) -> bool:
    """Whether several processes train together, each with the whole model or with its shard."""
    return is_distributed(optimizer) or is_sharded(optimizer)


class Shard:
    """What this process holds of a parameter that is spread over processes, used as if it were a parameter.

    It holds the rows from one index on, so its weights follow each other in the parameter, too.
    """

    def __init__(self, optimizer: FSDPOptimizerFastGradientClipping, parameter: DTensor) -> None:
        self._parameter, self._state = parameter, optimizer.grad_state[parameter]
        self._local = parameter.to_local().detach()
        _, (first, *_) = compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, parameter.placements
        )
        self.start = first * math.prod(parameter.shape[1:])
        self.shape, self.dtype, self.device = self._local.shape, self._local.dtype, self._local.device

    def numel(self) -> int:
        """How many weights this process holds."""
        return self._local.numel()

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return self._parameter.requires_grad

    @property
    def summed_grad(self) -> Tensor:
        """The part of the clipped sum that is here."""
        part: Tensor = self._state[CLIPPED_SUM].to_local()
        return part

    @property
    def grad(self) -> Tensor:
        """The part of the gradient that is here."""
        whole: Any = self._parameter.grad
        part: Tensor = whole.to_local()
        return part


def first_held(parameter: Tensor | Shard) -> int:
    """The index in the whole parameter of the first weight that this process holds."""
    return parameter.start if isinstance(parameter, Shard) else 0


def parts_held(optimizer: DPOptimizer) -> list[Any]:
    """The parameters, or what this process holds of them."""
    if not is_sharded(optimizer):
        return list(optimizer.params)
    return [Shard(optimizer, parameter) for parameter in optimizer.params]


def local_part(parameter: Tensor) -> Tensor:
    """What this process holds of a parameter."""
    held: Any = parameter.detach()
    part: Tensor = held.to_local() if isinstance(held, DTensor) else held
    return part


def is_sharded_by_rows(parameter: Tensor) -> bool:
    """Whether a parameter is spread over all processes by its first axis, as FSDP2 does by default."""
    placements: Sequence[object] = getattr(parameter, "placements", ())
    return list(placements) == [placement_types.Shard(0)]


def is_sharded(optimizer: DPOptimizer) -> bool:
    """Whether parameters are spread over processes (FSDP)."""
    return isinstance(optimizer, FSDPOptimizerFastGradientClipping)


def is_distributed(optimizer: DPOptimizer) -> bool:
    """Whether several processes hold the model and reduce their gradients (DDP)."""
    return isinstance(optimizer, _DISTRIBUTED)


def processes(optimizer: DPOptimizer) -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if is_distributed(optimizer) else 1


def noise_added(optimizer: DPOptimizer) -> float:
    """The noise multiplier of this step; adaptive clipping adds more noise than the accountant is told."""
    if isinstance(optimizer, AdaClipDPOptimizer) and optimizer.noise_multiplier > 0:
        # Its add_noise computes this and keeps it nowhere: the rest of the budget is for the noisy count of
        # rows that were not clipped (Theorem 1 of Andrew et al., https://arxiv.org/abs/1905.03871).
        return float((optimizer.noise_multiplier**-2 - (2 * optimizer.unclipped_num_std) ** -2) ** -0.5)
    return float(getattr(optimizer, "_adjusted_noise_multiplier", optimizer.noise_multiplier))


def accountant_of(optimizer: DPOptimizer) -> IAccountant | None:
    """The accountant that counts the optimizer's steps, if there is one; only its step hook knows it.

    Programs put hooks of their own around that one, which may hold other accountants: what Opacus' own hook
    holds comes first, and of several others it is not known which one counts.
    """
    waiting: list[object] = [optimizer.step_hook]
    seen: list[object] = []
    others: list[IAccountant] = []
    while waiting:
        hook = waiting.pop(0)
        if any(hook is one for one in seen):
            continue
        seen.append(hook)
        held = list(_captured(hook))
        found = [one for one in held if isinstance(one, IAccountant)]
        if found and isinstance(hook, FunctionType) and hook.__module__.startswith("opacus."):
            return found[0]
        others += [one for one in found if not any(one is other for other in others)]
        waiting += held
    return others[0] if len(others) == 1 else None


def _captured(hook: object) -> Iterator[object]:
    """What a function, a method or a partial function holds on to; nothing else is looked into."""
    if isinstance(hook, MethodType | MethodWrapperType):
        yield hook.__self__
    if isinstance(hook, MethodType):
        yield hook.__func__
    elif isinstance(hook, functools.partial):
        yield from (hook.func, *hook.args)
    elif isinstance(hook, FunctionType):
        for cell in hook.__closure__ or ():
            with suppress(ValueError):
                yield cell.cell_contents


def steps_counted(accountant: IAccountant) -> int:
    """How many steps an accountant has counted."""
    return sum(steps for *_, steps in history_of(accountant))


def history_of(accountant: IAccountant) -> list[tuple[float, float, int]]:
    """What an accountant was told: noise multiplier, sampling rate, and for how many steps in a row."""
    return [(float(noise), float(rate), int(steps)) for noise, rate, steps in accountant.history]


def averages_losses(optimizer: DPOptimizer) -> bool:
    """Whether the loss of a batch is the mean of those of its rows."""
    return bool(optimizer.loss_reduction == "mean")


def divisor(optimizer: DPOptimizer) -> float:
    """By what a noisy sum is divided on its way to `GRADIENT`, over all processes."""
    return float(optimizer.expected_batch_size * processes(optimizer)) if averages_losses(optimizer) else 1.0


def waiting_batches(parameter: Tensor) -> bool:
    """Whether per-sample gradients of several batches wait for one step."""
    return isinstance(getattr(parameter, "grad_sample", None), list)


def rows_waiting(optimizer: DPOptimizer) -> int:
    """The rows of a batch, before their gradients are added up; 0 if that does not show.

    With ghost clipping there are no gradients of rows, but the model leaves their norms with its parameters.
    """
    name = "_norm_sample" if clips_by_ghost(optimizer) else "grad_sample"
    held = (getattr(parameter, name, None) for parameter in optimizer.params)
    return max((len(of_rows) for of_rows in held if isinstance(of_rows, Tensor)), default=0)


def per_sample_gradients(parameter: Tensor) -> Tensor:
    """The gradients of the rows of this batch, (rows, ...), to be read and changed before clipping."""
    gradients: Tensor = parameter.grad_sample  # type: ignore[attr-defined]
    return gradients


def segment_sums(vector: Tensor, ends: Tensor) -> Tensor:
    """The sums of the parts of a vector between these places, in one call; 0 of empty ones."""
    return torch.segment_reduce(vector, "sum", offsets=ends, unsafe=True)


def clipping_factors(optimizer: DPOptimizer) -> Tensor:
    """By how much Opacus will multiply the gradient of each row of this batch, (rows) or (parameters, rows).

    Parameters have their own factors where they are clipped apart. In the precision in which Opacus does so:
    under autocast that is little, and what rounding does to equal norms adds up over a batch.
    """
    parts = [gradients.flatten(1).norm(2, dim=1) for gradients in map(per_sample_gradients, optimizer.params)]
    if apart := layer_norms(optimizer):
        each = [norm / (own + _SLACK) for norm, own in zip(apart, parts, strict=True)]
        return torch.stack(each).clamp(max=1.0)
    norms = torch.stack(parts, dim=1).norm(2, dim=1)
    factors: Tensor = (optimizer.max_grad_norm / (norms + _SLACK)).clamp(max=1.0)
    return factors


def clipped_alone(optimizer: DPOptimizer, gradients: Sequence[Tensor]) -> tuple[list[Tensor], float]:
    """The clipped sum of these gradients by the clipper that runs, whoever wrote it, and its clip norm then.

    Changes of the optimizer are put back, so that training goes on as if the clipper had not run.
    """
    held = [(parameter.grad_sample, parameter.summed_grad) for parameter in optimizer.params]
    kept = {name: one.clone() if isinstance(one, Tensor) else one for name, one in vars(optimizer).items()}
    try:
        for parameter, own in zip(optimizer.params, gradients, strict=True):
            parameter.grad_sample, parameter.summed_grad = own, None
        _running(optimizer, CLIP)()
        return [parameter.summed_grad for parameter in optimizer.params], clip_norm_of(optimizer)
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(kept)
        for parameter, (own, total) in zip(optimizer.params, held, strict=True):
            parameter.grad_sample, parameter.summed_grad = own, total


def clipped_sum(optimizer: DPOptimizer) -> list[Tensor]:
    """What the batch that went back last adds to the clipped sum, by Opacus' own clipping.

    Past whatever was put before it on this optimizer: canaries, if it is audited.
    """
    if clips_by_ghost(optimizer):
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in optimizer.params]
    type(optimizer).clip_and_accumulate(optimizer)
    return [p.summed_grad for p in optimizer.params]


def forget_gradients(model: nn.Module, optimizer: DPOptimizer) -> None:
    """Forget gradients of every kind, and activations that wait for a backward pass."""
    for parameter in optimizer.params:
        for name in _GRADIENTS:
            setattr(parameter, name, None)
        if hasattr(parameter, "_forward_counter"):
            parameter._forward_counter = 0
    for module in model.modules():
        for waiting in ("activations", "max_batch_len"):
            if hasattr(module, waiting):
                delattr(module, waiting)


@contextmanager
def gradients_kept(model: nn.Module, optimizer: DPOptimizer) -> Iterator[None]:
    """Put gradients of every kind back at the end, and norms and noise that adaptive clipping changes."""
    kept = [[getattr(p, name, None) for name in _GRADIENTS] for p in optimizer.params]
    owners = {owner: dict(vars(owner)) for owner in (model, optimizer)}
    try:
        yield
    finally:
        for owner, attributes in owners.items():
            for name in _ADAPTED:
                vars(owner).pop(name, None)
                vars(owner).update({name: attributes[name]} if name in attributes else {})
        for parameter, held in zip(optimizer.params, kept, strict=True):
            for name, value in zip(_GRADIENTS, held, strict=True):
                setattr(parameter, name, value)


@contextmanager
def clipped_to(model: nn.Module, optimizer: DPOptimizer, norm: float) -> Iterator[None]:
    """Clip to another norm; with ghost clipping it is the model that knows it."""
    owners = [owner for owner in (model, optimizer) if hasattr(owner, "max_grad_norm")]
    kept = [owner.max_grad_norm for owner in owners]
    try:
        for owner in owners:
            owner.max_grad_norm = norm
        yield
    finally:
        for owner, value in zip(owners, kept, strict=True):
            owner.max_grad_norm = value


def clips_adaptively(optimizer: DPOptimizer) -> bool:
    """Whether the clip norm follows the data, through a noisy count of its own."""
    return isinstance(optimizer, AdaClipDPOptimizer) or hasattr(optimizer, "_adjusted_noise_multiplier")


def waiting_sums(optimizer: DPOptimizer) -> list[Tensor]:
    """A copy of the sum of clipped gradients, by parameter."""
    return [getattr(parameter, CLIPPED_SUM).detach().clone() for parameter in optimizer.params]


def rounding(optimizer: DPOptimizer) -> float:
    """The relative rounding error of gradients, as they were when they were clipped."""
    kinds = set()
    for parameter in optimizer.params:
        gradients = getattr(parameter, "grad_sample", None)
        each = gradients if isinstance(gradients, list) else [gradients]
        kinds |= {one.dtype for one in each if one is not None} | {getattr(parameter, CLIPPED_SUM).dtype}
    return max(float(torch.finfo(kind).eps) for kind in kinds)
