"""Every touch of what Opacus and torch do not document, checked against the versions named here.

The rest of this folder uses the private optimizer and data loader by their documented attributes. When Opacus
changes, this is the file to read again, and `_programs.py`, which patches methods.
"""

import copyreg
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FunctionType, MethodType, MethodWrapperType
from typing import Any, Final, TypeAlias

import numpy as np
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
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, placement_types
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
)

from canaria._core.arrays import Integers
from canaria._core.errors import InputError

CHECKED: Final = {"opacus": ("1.6.0",), "torch": ("2.13.0",)}
"""The versions with which this file was read and tested."""
_CLIP: Final = "clip_and_accumulate"
"""The method of an optimizer that clips the gradients of a batch and adds them to the clipped sum."""
_CLIP_FLAT, _CLIP_APART = DPOptimizer.clip_and_accumulate, DPPerLayerOptimizer.clip_and_accumulate
"""Opacus' own, as they were imported: programs put others in their places."""
ADD_NOISE: Final = "add_noise"
"""The method of an optimizer that adds noise to the clipped sum."""
CLIPPED_SUM: Final = "summed_grad"
"""The attribute of a parameter that holds the sum of clipped gradients, before noise."""
GRADIENT: Final = "grad"
"""The attribute that holds what the wrapped optimizer will use."""
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

PoissonSampler: TypeAlias = UniformWithReplacementSampler
Loader: TypeAlias = DataLoader[Any]
GhostClipper: TypeAlias = GradSampleHooksFastGradientClipping
Undo = Callable[[], None]
OnBatch = Callable[[list[int] | None], None]
"""Is told the rows of every batch of a pass, and None at its end."""
_DISTRIBUTED: Final = (DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping)


def clips_as_opacus(optimizer: DPOptimizer) -> bool:
    """Whether the clipper that runs is Opacus' own, so that `clipping_factors` are what it multiplies by."""
    return getattr(_running(optimizer, _CLIP), "__func__", None) in (_CLIP_FLAT, _CLIP_APART)


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


def samples_by_poisson(data_loader: Loader) -> bool:
    """Whether every row is drawn by a coin of its own, as Opacus' samplers do."""
    sampler = getattr(data_loader, "batch_sampler", None)
    return isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler)


def shuffles(data_loader: Loader) -> bool:
    """Whether batches are cut from an order of the rows, as torch's own sampler does, so never by coins."""
    sampler = sampler_of(data_loader)
    return isinstance(sampler, BatchSampler) and type(sampler).__iter__ is BatchSampler.__iter__


def sampler_of(data_loader: Loader) -> Any:
    """The sampler whose draws are followed: that of batches, or the one in it that draws groups of rows.

    A sampler of authors, as in dp-transformers, takes one row of each author that another sampler drew. What
    it takes part by is the author, so it is the draws of authors that are stated.
    """
    sampler = data_loader.batch_sampler
    rows = _number(sampler, len(data_loader.dataset))  # type: ignore[arg-type]
    inner = _inner(sampler)
    return sampler if inner is None or _number(inner, rows) == rows else inner


def _inner(sampler: Any) -> Any:
    """A sampler of batches that another one holds, and makes its batches of; None if there is none."""
    held = () if isinstance(sampler, BatchSampler) else vars(sampler).values()
    inner = (one for one in held if isinstance(one, Sampler))
    return next((one for one in inner if isinstance(one, BatchSampler) or hasattr(one, "sample_rate")), None)


def _number(sampler: Any, otherwise: int) -> int:
    """From how many rows a sampler draws, as it says or as the one in it does."""
    told = getattr(sampler, "total_size", getattr(sampler, "num_samples", None))
    if isinstance(told, int):
        return told
    drawn_from: Any = getattr(sampler, "sampler", None)
    return len(drawn_from) if hasattr(drawn_from, "__len__") else otherwise


def sampled_rows(data_loader: Loader) -> int:
    """From how many rows the sampler draws, over all processes."""
    return _number(sampler_of(data_loader), len(data_loader.dataset))  # type: ignore[arg-type]


def copies_of_rows(dataset: object) -> int:
    """The most often that a data set lists one row, as far as torch's own data sets say."""
    if not isinstance(dataset, Subset | ConcatDataset):
        return 1
    listed = _listed(dataset)
    return int(np.unique(listed, axis=0, return_counts=True)[1].max(initial=1))


def _listed(dataset: Dataset[Any]) -> Integers:
    """For each row the data set that it is from, and its number there."""
    if isinstance(dataset, Subset):
        chosen: Integers = _listed(dataset.dataset)[np.asarray(dataset.indices)]
        return chosen
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_listed(part) for part in dataset.datasets])
    rows = len(dataset)  # type: ignore[arg-type]
    return np.column_stack([np.full(rows, id(dataset)), np.arange(rows)])


def rows_of_process(data_loader: Loader) -> int:
    """From how many rows the sampler of this process draws."""
    by_poisson = samples_by_poisson(data_loader)
    return int(sampler_of(data_loader).num_samples) if by_poisson else sampled_rows(data_loader)


def shares_rows(data_loader: Loader) -> bool:
    """Whether other processes have samplers for the other rows."""
    return isinstance(data_loader.batch_sampler, DistributedUniformWithReplacementSampler)


def rows_here(sampler: Any, epoch: int) -> Integers:
    """The rows that a distributed Poisson sampler draws from in this process, in the order of its coins.

    As its `__iter__` divides them, anew for each epoch.
    """
    order = torch.arange(sampler.total_size)
    if sampler.shuffle:
        seeded = torch.Generator().manual_seed(sampler.shuffle_seed + epoch)
        order = torch.randperm(sampler.total_size, generator=seeded)
    own: Integers = order[sampler.rank :: sampler.num_replicas].numpy()
    return own


def pool_of(data_loader: Loader) -> Integers | None:
    """The rows that this process draws from in its first epoch; None for samplers of other classes."""
    sampler: Any = data_loader.batch_sampler
    if type(sampler) is DistributedUniformWithReplacementSampler:
        return rows_here(sampler, 0)
    if type(sampler) is UniformWithReplacementSampler:
        return np.arange(sampler.num_samples)
    whole = type(getattr(sampler, "sampler", None)) in (RandomSampler, SequentialSampler)
    return np.arange(len(data_loader.dataset)) if whole else None  # type: ignore[arg-type]


def rate_of(data_loader: Loader) -> float:
    """The probability with which a row is in a batch, as its sampler says or by the size of a batch."""
    sampler: Any = data_loader.batch_sampler
    inner = sampler if hasattr(sampler, "sample_rate") else _inner(sampler) or sampler
    if hasattr(inner, "sample_rate"):
        return float(inner.sample_rate)
    size = getattr(inner, "batch_size", None)
    return 1 / len(sampler) if size is None else min(1.0, size / sampled_rows(data_loader))


def batches_of(data_loader: Loader) -> int:
    """How many batches a pass has."""
    return len(data_loader.batch_sampler)  # type: ignore[arg-type]


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


def require_trained(optimizer: DPOptimizer) -> None:
    """Canaries in a parameter that is frozen would stay in its sum without noise."""
    if not all(parameter.requires_grad for parameter in optimizer.params):
        raise InputError(
            "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
            "changing what is trained"
        )


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


def clipped_alone(optimizer: DPOptimizer) -> list[Tensor]:
    """What these gradients would add to the clipped sum, by the clipper that runs, whoever wrote it.

    It is run on copies, and what it changed in the optimizer is put back, so that training goes on as if it
    had not run.
    """
    held = [(parameter.grad_sample, parameter.summed_grad) for parameter in optimizer.params]
    kept = {name: one.clone() if isinstance(one, Tensor) else one for name, one in vars(optimizer).items()}
    try:
        for parameter in optimizer.params:
            parameter.grad_sample, parameter.summed_grad = parameter.grad_sample.clone(), None
        _running(optimizer, _CLIP)()
        return [parameter.summed_grad for parameter in optimizer.params]
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(kept)
        for parameter, (gradients, total) in zip(optimizer.params, held, strict=True):
            parameter.grad_sample, parameter.summed_grad = gradients, total


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


class Before:
    """Calls `do` before each call of a method of an optimizer, until `undo`."""

    def __init__(self, optimizer: DPOptimizer, method: str, do: Callable[[], None]) -> None:
        self._optimizer, self._method, self._do = optimizer, method, do
        self._inside = False
        self._both: Any = None
        self.renew()

    def renew(self) -> None:
        """If the program has put another method in this one's place, call `do` before that."""
        own = getattr(self._optimizer, self._method)
        if own is self._both:
            return

        @functools.wraps(own)
        def both(*args: Any, **how: Any) -> Any:
            if self._inside:  # the program's method calls the one that it replaced: an earlier `both`
                return own(*args, **how)
            self._inside = True
            try:
                self._do()
                return own(*args, **how)
            finally:
                self._inside = False

        both.canaria_calls = own  # type: ignore[attr-defined]
        self._own, self._both = own, both
        setattr(self._optimizer, self._method, both)

    def undo(self) -> None:
        """Put back what was there."""
        if getattr(self._optimizer, self._method) is self._both:
            setattr(self._optimizer, self._method, self._own)


def _running(optimizer: DPOptimizer, method: str) -> Any:
    """A method as the program has it, without what an audit put before it."""
    own = getattr(optimizer, method)
    return getattr(own, "canaria_calls", own)


def before_step(optimizer: DPOptimizer, do: Callable[[], None]) -> Before:
    """Call `do` before anything is done for a step."""
    return Before(optimizer, "pre_step", do)


def before_clipping(optimizer: DPOptimizer, do: Callable[[], None]) -> Before:
    """Call `do` each time before gradients of a batch are clipped and added up; by ghost, only added up."""
    return Before(optimizer, "accumulate" if clips_by_ghost(optimizer) else _CLIP, do)


def before_noise(optimizer: DPOptimizer, do: Callable[[], None]) -> Before:
    """Call `do` each time before noise is added to the clipped sum."""
    return Before(optimizer, ADD_NOISE, do)


def after_noise(optimizer: DPOptimizer, do: Callable[[], None]) -> Before:
    """Call `do` each time after noise was added, before the step is counted by the accountant."""
    return Before(optimizer, "scale_grad", do)


def before_update(optimizer: DPOptimizer, do: Callable[[], None]) -> Undo:
    """Call `do` before the wrapped optimizer uses the gradients, after noise, scaling and reduction.

    Before other hooks, too: what they change is no longer part of the mechanism.
    """
    handle = optimizer.original_optimizer.register_step_pre_hook(lambda *_: do())
    hooks: Any = optimizer.original_optimizer._optimizer_step_pre_hooks
    hooks.move_to_end(handle.id, last=False)
    undo: Undo = handle.remove
    return undo


class LastBeforeUpdate:
    """Calls `do` when the wrapped optimizer is about to use the gradients, after all other hooks.

    Programs add hooks at any time, so `renew` makes it the last one again. It must not be called while hooks
    run.
    """

    def __init__(self, optimizer: DPOptimizer, do: Callable[[], None]) -> None:
        self._handle = optimizer.original_optimizer.register_step_pre_hook(lambda *_: do())
        self._hooks: Any = optimizer.original_optimizer._optimizer_step_pre_hooks

    def renew(self) -> None:
        """Call `do` after hooks that were added since."""
        self._hooks.move_to_end(self._handle.id)

    def undo(self) -> None:
        """Take it out."""
        self._handle.remove()


def after_update(optimizer: DPOptimizer, do: Callable[[], None]) -> Undo:
    """Call `do` after the wrapped optimizer has used the gradients, before other hooks."""
    handle = optimizer.original_optimizer.register_step_post_hook(lambda *_: do())
    hooks: Any = optimizer.original_optimizer._optimizer_step_post_hooks
    hooks.move_to_end(handle.id, last=False)
    undo: Undo = handle.remove
    return undo


def record_draws(sampler: Any, on_pass: Callable[[], OnBatch]) -> Undo:
    """Call `on_pass` when the sampler begins anew, and what it returns with every batch it draws.

    The sampler gets a class of its own: loaders ask its type, and call `__iter__` on it. Copies of it, and
    what is pickled, are not recorded.
    """
    kind = type(sampler)

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[Any]:
            record = on_pass()
            for batch in kind.__iter__(self):  # what is told may have changed the class once more
                record(batch.tolist() if isinstance(batch, Tensor) else list(batch))
                yield batch
            record(None)

        def __reduce__(self) -> Any:
            return copyreg.__newobj__, (kind,), self.__dict__  # type: ignore[attr-defined]

    sampler.__class__ = Recorded
    return lambda: setattr(sampler, "__class__", kind)


def clips_adaptively(optimizer: DPOptimizer) -> bool:
    """Whether the clip norm follows the data, through a noisy count of its own."""
    return isinstance(optimizer, AdaClipDPOptimizer) or hasattr(optimizer, "_adjusted_noise_multiplier")


def waiting_sums(optimizer: DPOptimizer) -> list[Tensor]:
    """A copy of the sum of clipped gradients, by parameter."""
    return [getattr(parameter, CLIPPED_SUM).detach().clone() for parameter in optimizer.params]


def rows_of(sampler: PoissonSampler) -> int:
    """From how many rows a sampler draws."""
    return int(sampler.num_samples)


def rounding(optimizer: DPOptimizer) -> float:
    """The relative rounding error of gradients, as they were when they were clipped."""
    kinds = set()
    for parameter in optimizer.params:
        gradients = getattr(parameter, "grad_sample", None)
        each = gradients if isinstance(gradients, list) else [gradients]
        kinds |= {one.dtype for one in each if one is not None} | {getattr(parameter, CLIPPED_SUM).dtype}
    return max(float(torch.finfo(kind).eps) for kind in kinds)
