"""All uses of undocumented parts of Opacus and torch, checked with the versions named here.

The rest of this folder uses documented attributes of the private optimizer and data loader. When Opacus
changes, review this file, `_samplers.py`, `_hooks.py` and `_programs.py`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DistributedDPOptimizer,
    DPOptimizer,
    DPOptimizerFastGradientClipping,
    DPPerLayerOptimizer,
)
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import DistributedDPOptimizerFastGradientClipping
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, placement_types
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from canaria.integrations.opacus._versions import FSDPOptimizerFastGradientClipping, GhostClipper

CHECKED: Final = {"opacus": ("1.5.4", "1.6.0"), "torch": ("2.13.0",)}
"""The versions with which this file was read and tested."""
CLIP: Final = "clip_and_accumulate"
"""The method of an optimizer that clips the gradients of a batch and adds them to the clipped sum."""
_CLIP_FLAT, _CLIP_APART = DPOptimizer.clip_and_accumulate, DPPerLayerOptimizer.clip_and_accumulate
"""Opacus' own methods, as they were when imported: programs may replace them later."""
ADD_NOISE: Final = "add_noise"
"""The method of an optimizer that adds noise to the clipped sum."""
CLIPPED_SUM: Final = "summed_grad"
"""The attribute of a parameter that holds the sum of clipped gradients, before noise."""
GRADIENT: Final = "grad"
"""The attribute with the gradient that the wrapped optimizer will use."""
CALLS: Final = "canaria_calls"
"""The attribute of a method inserted by an audit that holds the method it calls."""
WITHOUT_NOISE: Final = (CLIPPED_SUM, "grad_sample", "_norm_sample")
"""What Opacus keeps of gradients without noise, beside a parameter."""
_GRADIENTS: Final = (GRADIENT, "grad_sample", CLIPPED_SUM)
"""The attributes of a parameter that hold gradients: torch's, those of rows, and the clipped sum."""
_ADAPTED: Final = ("max_grad_norm", "noise_multiplier", "_adjusted_noise_multiplier")
"""The attributes of optimizer and model that adaptive clipping changes."""
copy_each: Final = torch._foreach_copy_
"""Copies tensors, the second into the first, in one call."""
add_each: Final = torch._foreach_add_
"""Adds `alpha` times tensors, the second to the first, in one call."""
_SLACK: Final = 1e-6
"""Opacus adds this to the gradient norm before dividing."""

_DISTRIBUTED: Final = (DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping)


def _running(optimizer: DPOptimizer, method: str) -> Any:
    """The program's method, without the one that an audit put before it."""
    own = getattr(optimizer, method)
    return getattr(own, CALLS, own)


def clips_as_opacus(optimizer: DPOptimizer) -> bool:
    """Whether the current clipper is Opacus' own, so that it multiplies by `clipping_factors`."""
    return getattr(_running(optimizer, CLIP), "__func__", None) in (_CLIP_FLAT, _CLIP_APART)


def clips_flat(optimizer: DPOptimizer) -> bool:
    """Whether each gradient is clipped as a whole, to one fixed norm."""
    adapted = isinstance(optimizer, AdaClipDPOptimizer | DPPerLayerOptimizer)
    return not adapted and isinstance(optimizer.max_grad_norm, int | float)


def layer_norms(optimizer: DPOptimizer) -> list[float]:
    """The norm to which each parameter is clipped; empty if gradients are clipped as a whole."""
    return list(map(float, optimizer.max_grad_norms)) if isinstance(optimizer, DPPerLayerOptimizer) else []


def clip_norm_of(optimizer: DPOptimizer, clippers: Sequence[GhostClipper] = ()) -> float:
    """The largest weight of a row in `CLIPPED_SUM`, which is an average over processes if sharded.

    With ghost clipping, the model clips, and its norm may differ from the optimizer's, which adds the noise.
    """
    if isinstance(optimizer, DPPerLayerOptimizer):
        return math.hypot(*layer_norms(optimizer))
    norm = max([float(owner.max_grad_norm) for owner in (optimizer, *clippers)])
    return norm / torch.distributed.get_world_size() if is_sharded(optimizer) else norm


def clippers_of(optimizer: DPOptimizer, made: Sequence[object]) -> list[GhostClipper]:
    """The parts of models that ghost-clip the optimizer's gradients; none if the optimizer clips."""
    models = [one for one in made if isinstance(one, nn.Module)]
    parts = list(itertools.chain(made, *(model.modules() for model in models)))
    trained = {id(parameter) for parameter in optimizer.params}
    return [
        part
        for part in parts
        if isinstance(part, GhostClipper)
        and any(id(parameter) in trained for parameter in part._module.parameters())
    ]


def sum_waits(optimizer: DPOptimizer) -> bool:
    """Whether a clipped sum is waiting for its noise."""
    first = optimizer.params[0]
    held = optimizer.grad_state[first] if is_sharded(optimizer) else vars(first)
    return held.get(CLIPPED_SUM) is not None


def clips_by_ghost(optimizer: DPOptimizer) -> bool:
    """Whether norms are computed without per-sample gradients (ghost clipping)."""
    return isinstance(optimizer, DPOptimizerFastGradientClipping)


def is_together(optimizer: DPOptimizer) -> bool:
    """Whether several processes train together, each with the whole model or with a shard."""
    return is_distributed(optimizer) or is_sharded(optimizer)


class Shard:
    """The local part of a parameter that is sharded over processes, with the interface of a parameter.

    It is a contiguous block of rows, so its weights are contiguous in the parameter too.
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
        """The number of weights that this process holds."""
        return self._local.numel()

    @property
    def requires_grad(self) -> bool:
        """Whether the parameter is trained."""
        return self._parameter.requires_grad

    @property
    def summed_grad(self) -> Tensor:
        """The local part of the clipped sum."""
        part: Tensor = self._state[CLIPPED_SUM].to_local()
        return part

    @property
    def grad(self) -> Tensor:
        """The local part of the gradient."""
        whole: Any = self._parameter.grad
        part: Tensor = whole.to_local()
        return part


def first_held(parameter: Tensor | Shard) -> int:
    """The index, in the whole parameter, of the first weight that this process holds."""
    return parameter.start if isinstance(parameter, Shard) else 0


def parts_held(optimizer: DPOptimizer) -> list[Any]:
    """The parameters, or their local parts if they are sharded."""
    if not is_sharded(optimizer):
        return list(optimizer.params)
    return [Shard(optimizer, parameter) for parameter in optimizer.params]


def local_part(parameter: Tensor) -> Tensor:
    """The part of a parameter that this process holds."""
    held: Any = parameter.detach()
    part: Tensor = held.to_local() if isinstance(held, DTensor) else held
    return part


def is_sharded_by_rows(parameter: Tensor) -> bool:
    """Whether a parameter is sharded over all processes by its first axis, as FSDP2 does by default."""
    placements: Sequence[object] = getattr(parameter, "placements", ())
    return list(placements) == [placement_types.Shard(0)]


def is_sharded(optimizer: DPOptimizer) -> bool:
    """Whether parameters are sharded over processes (FSDP)."""
    return isinstance(optimizer, FSDPOptimizerFastGradientClipping)


def is_distributed(optimizer: DPOptimizer) -> bool:
    """Whether several processes hold the model and reduce their gradients (DDP)."""
    return isinstance(optimizer, _DISTRIBUTED)


def processes(optimizer: DPOptimizer) -> int:
    """The number of processes that train together."""
    return torch.distributed.get_world_size() if is_distributed(optimizer) else 1


def noise_added(optimizer: DPOptimizer) -> float:
    """The noise multiplier of this step. Adaptive clipping adds more noise than its accountant records."""
    if isinstance(optimizer, AdaClipDPOptimizer) and optimizer.noise_multiplier > 0:
        # AdaClip's add_noise computes this and does not keep it: the rest of the budget is for the noisy
        # count of rows that were not clipped (Theorem 1 of Andrew et al., https://arxiv.org/abs/1905.03871).
        return float((optimizer.noise_multiplier**-2 - (2 * optimizer.unclipped_num_std) ** -2) ** -0.5)
    return float(getattr(optimizer, "_adjusted_noise_multiplier", optimizer.noise_multiplier))


def averages_losses(optimizer: DPOptimizer) -> bool:
    """Whether the loss of a batch is the mean over its rows."""
    return bool(optimizer.loss_reduction == "mean")


def divisor(optimizer: DPOptimizer) -> float:
    """The divisor between a noisy sum and `GRADIENT`, over all processes."""
    return float(optimizer.expected_batch_size * processes(optimizer)) if averages_losses(optimizer) else 1.0


def waiting_batches(parameter: Tensor) -> bool:
    """Whether per-sample gradients of several batches are waiting for one step."""
    return isinstance(getattr(parameter, "grad_sample", None), list)


def rows_waiting(optimizer: DPOptimizer) -> int:
    """The number of rows in a batch, before their gradients are summed; 0 if it is not known.

    With ghost clipping there are no gradients of rows, but the model stores their norms with its parameters.
    """
    return max(map(len, _of_rows(optimizer)), default=0)


def rows_that_count(optimizer: DPOptimizer) -> Tensor | int:
    """The number of rows that have a gradient, without waiting for the device; 0 if it is not known.

    Rows without one, such as padding, add nothing to the sum. The smallest parameter shows which these are.
    """
    held = min(_of_rows(optimizer), key=Tensor.numel, default=None)
    return (
        0
        if held is None
        else held.detach().flatten(1).any(dim=1).sum()
        if held.ndim > 1
        else held.count_nonzero()
    )


def _of_rows(optimizer: DPOptimizer) -> list[Tensor]:
    name = "_norm_sample" if clips_by_ghost(optimizer) else "grad_sample"
    held = (getattr(parameter, name, None) for parameter in optimizer.params)
    return [of_rows for of_rows in held if isinstance(of_rows, Tensor)]


def per_sample_gradients(parameter: Tensor) -> Tensor:
    """The gradients of the rows of this batch, (rows, ...), which may be changed before clipping."""
    gradients: Tensor = parameter.grad_sample  # type: ignore[attr-defined]
    return gradients


def clipping_factors(optimizer: DPOptimizer) -> Tensor:
    """The factors by which Opacus will multiply each row's gradient, (rows) or (parameters, rows).

    Parameters have separate factors if they are clipped separately. The precision is that of Opacus: under
    autocast it is low, and rounding errors of equal norms add up over a batch.
    """
    parts = [gradients.flatten(1).norm(2, dim=1) for gradients in map(per_sample_gradients, optimizer.params)]
    if apart := layer_norms(optimizer):
        each = [norm / (own + _SLACK) for norm, own in zip(apart, parts, strict=True)]
        return torch.stack(each).clamp(max=1.0)
    norms = torch.stack(parts, dim=1).norm(2, dim=1)
    factors: Tensor = (optimizer.max_grad_norm / (norms + _SLACK)).clamp(max=1.0)
    return factors


def clipped_alone(optimizer: DPOptimizer, gradients: Sequence[Tensor]) -> tuple[list[Tensor], float]:
    """The clipped sum of these gradients by the current clipper, of whatever origin, and its clip norm then.

    Changes to the optimizer and to random streams are undone: training continues as if it had not run.
    """
    held = [(getattr(p, "grad_sample", None), p.summed_grad) for p in optimizer.params]
    kept = dict(vars(optimizer))
    values = {name: one.detach().clone() for name, one in kept.items() if isinstance(one, Tensor)}
    try:
        with torch.random.fork_rng({p.device for p in optimizer.params if p.is_cuda}):
            for parameter, own in zip(optimizer.params, gradients, strict=True):
                parameter.grad_sample, parameter.summed_grad = own, None
            _running(optimizer, CLIP)()
        return [parameter.summed_grad for parameter in optimizer.params], clip_norm_of(optimizer)
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(kept)
        for name, value in values.items():
            kept[name].data.copy_(value)
        for parameter, (rows, total) in zip(optimizer.params, held, strict=True):
            parameter.grad_sample, parameter.summed_grad = rows, total


def clipped_sum(optimizer: DPOptimizer) -> list[Tensor]:
    """The contribution of the last batch to the clipped sum, by Opacus' own clipping.

    It bypasses methods that were inserted into this optimizer, such as the canaries of an audit.
    """
    if clips_by_ghost(optimizer):
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in optimizer.params]
    type(optimizer).clip_and_accumulate(optimizer)
    return [p.summed_grad for p in optimizer.params]


def forget_gradients(model: nn.Module, optimizer: DPOptimizer) -> None:
    """Delete gradients of all kinds, and activations that wait for a backward pass."""
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
    """Restore gradients of all kinds at the end, and norms and noise that adaptive clipping changes."""
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
    """Clip to another norm. With ghost clipping, the model holds it."""
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
    """Whether the clip norm adapts to the data, through a noisy count of its own."""
    return isinstance(optimizer, AdaClipDPOptimizer) or hasattr(optimizer, "_adjusted_noise_multiplier")


def waiting_sums(optimizer: DPOptimizer) -> list[Tensor]:
    """A copy of the sum of clipped gradients, by parameter."""
    return [getattr(parameter, CLIPPED_SUM).detach().clone() for parameter in optimizer.params]


def rounding(optimizer: DPOptimizer) -> float:
    """The relative rounding error of the gradients when they were clipped."""
    kinds = set()
    for parameter in optimizer.params:
        gradients = getattr(parameter, "grad_sample", None)
        each = gradients if isinstance(gradients, list) else [gradients]
        kinds |= {one.dtype for one in each if one is not None} | {getattr(parameter, CLIPPED_SUM).dtype}
    return max(float(torch.finfo(kind).eps) for kind in kinds)
