"""Isolation of rows: checks the actual model, loss and clipper for effects of one row on another."""

import copy
import warnings
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from canaria._core import checks, seeds
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.integrations.opacus import _internals
from canaria.integrations.opacus._checks import require_flat
from canaria.integrations.opacus._items import leaves
from canaria.integrations.opacus._programs import without_dropout
from canaria.preflight.isolation import Isolation, isolation_of

Loss = Callable[[Any, Any], Any]
"""loss(model, batch): the value on which training calls backward()."""

_ROWS: Final = 0x726F7773
"""The stream of random numbers that chooses rows."""
_UNCLIPPED: Final = 1e12
"""A clip norm that no gradient reaches."""
_RANDOM: Final = 1e-3
"""Two evaluations of one batch that differ by more, as a share of their sum, draw random numbers."""
_CHANGED: Final = 2e-2
"""An output of a layer that changes by more than this, relative to itself, depends on other rows."""
_TF32: Final = 2.0**-10
"""The rounding error of GPUs that shorten single precision in products."""


def check_isolation(
    model: nn.Module, optimizer: DPOptimizer, loss: Loss, batch: Any, *, rows: int = 8, rng: seeds.Seed = None
) -> Isolation:
    """Check that no row of a batch changes another row's contribution to the clipped sum.

    If one does, adding or removing it moves the sum by more than the clip norm, and the stated epsilon does
    not hold. Canaries cannot detect that. Rows are dropped one at a time and in pairs. Nothing is trained:
    parameters, gradients, buffers and random states are restored afterwards. Dropout is switched off during
    the check.

    Args:
        model: The private model, in training mode.
        optimizer: The private optimizer, with any implementation of flat clipping: hooks, functorch, ghost.
        loss: The loss function of training: `loss(model, batch)` returns the value on which `backward()` is
            called.
        batch: A batch from the data loader: tensors, or lists with one entry for each row, in tuples, lists
            or dictionaries.
        rows: The number of rows to drop in pairs, half of them those that move the sum farthest. The cost is
            about rows x rows steps.
        rng: A seed for the choice of rows in a large batch.

    Raises:
        InputError: If the batch has fewer than three rows, or the loss differs from call to call.

    Example:
        >>> import torch
        >>> from opacus import GradSampleModule
        >>> from opacus.optimizers import DPOptimizer
        >>> model = GradSampleModule(torch.nn.Linear(3, 1))
        >>> optimizer = DPOptimizer(
        ...     torch.optim.SGD(model.parameters()),
        ...     noise_multiplier=1.0,
        ...     max_grad_norm=1.0,
        ...     expected_batch_size=4,
        ... )
        >>> rows = torch.ones(4, 3)
        >>> check_isolation(model, optimizer, lambda model, rows: model(rows).square().mean(), rows).holds
        True
    """
    require_flat(optimizer)
    if _internals.is_distributed(optimizer):
        raise InputError("check isolation in one process, before the model is made distributed")
    if not model.training:
        raise InputError(
            "model is in evaluation mode, in which it has no gradients of rows; call model.train()"
        )
    checks.integer("rows", rows, 2)
    count = _length(batch)
    with _untouched(model, optimizer), without_dropout():
        step = _Step(model, optimizer, loss, batch)
        step.clipped(range(count))
        if _internals.clips_adaptively(optimizer):
            raise InputError("the clip norm follows the data (adaptive clipping); check with a fixed one")
        _without_chance(model, partial(step.clipped, range(count)))
        return isolation_of(
            step.clipped,
            step.unclipped,
            count=count,
            rows=rows,
            rng=seeds.generator(rng, _ROWS),
            clip_norm=float(optimizer.max_grad_norm),
            rounding=_rounding(step, range(min(count, rows))),
            cause_in_model=partial(_cause_in_model, step),
        )


class _Step:
    """One step of training on some rows of a batch, up to the noise."""

    def __init__(self, model: nn.Module, optimizer: DPOptimizer, loss: Loss, batch: Any) -> None:
        self.model = model
        self._optimizer = optimizer
        self._loss = loss
        self._batch = batch

    def forward(self, rows: Sequence[int]) -> Any:
        """The loss of these rows."""
        _internals.forget_gradients(self.model, self._optimizer)
        return self._loss(self.model, _taken(self._batch, list(rows)))

    def clipped(self, rows: Sequence[int]) -> Floats:
        self.forward(rows).backward()
        parts = [part.detach().flatten().float() for part in _internals.clipped_sum(self._optimizer)]
        return torch.cat(parts).cpu().numpy()

    def unclipped(self, rows: Sequence[int]) -> Floats:
        """The sum of these rows without clipping."""
        with _internals.clipped_to(self.model, self._optimizer, _UNCLIPPED):
            return self.clipped(rows)


@contextmanager
def _untouched(model: nn.Module, optimizer: DPOptimizer) -> Iterator[None]:
    training = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with (
        torch.random.fork_rng(),
        seeds.global_state_kept(),
        _internals.gradients_kept(model, optimizer),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        try:
            yield
        finally:
            _internals.forget_gradients(model, optimizer)
            for module, mode in training.items():
                module.training = mode
            for buffer, value in buffers:
                buffer.detach().copy_(value)


def _without_chance(model: nn.Module, evaluate: Callable[[], Floats]) -> None:
    """If random numbers are drawn other than by torch's dropout, set modules to evaluation mode.

    Attention has its own dropout, active in training mode. Modules with weights must stay in training mode,
    or Opacus ignores them.
    """
    if not _is_random(evaluate):
        return
    for module in model.modules():
        weightless = next(module.parameters(recurse=False), None) is None
        if weightless and module is not model and not isinstance(module, nn.modules.batchnorm._NormBase):
            module.training = False
    if _is_random(evaluate):
        raise InputError(
            "the loss of one batch differs from call to call, so that rows cannot be compared; switch off "
            "what draws random numbers in it (augmentation, dropout of its own) for this check"
        )


def _is_random(evaluate: Callable[[], Floats]) -> bool:
    torch.manual_seed(1)
    first = torch.from_numpy(evaluate())
    torch.manual_seed(2)
    second = torch.from_numpy(evaluate())
    return bool((first - second).norm() > _RANDOM * first.norm())


def _rounding(step: _Step, rows: Sequence[int]) -> float:
    """The relative rounding error of the coarsest arithmetic in this step."""
    tensors = [output for *_, output in _outputs(step, rows)] + list(step.model.parameters())
    rough = max(torch.finfo(one.dtype).eps for one in tensors if one.is_floating_point())
    shortened = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return max(rough, _TF32) if shortened and any(one.is_cuda for one in tensors) else rough


def _cause_in_model(step: _Step, rows: Sequence[int], dropped: int) -> str:
    """The first module whose output for the other rows changes if this row is dropped, in words."""
    count, kept = len(rows), [place for place, row in enumerate(rows) if row != dropped]
    whole, fewer = _outputs(step, rows), _outputs(step, [rows[place] for place in kept])
    # With fewer rows a model may call fewer modules; those that are left over cannot be compared.
    for (module, name, output), (*_, other) in zip(whole, fewer, strict=False):
        if not _comparable(output, other, count):
            continue
        by_row, rest = output.float().reshape(count, -1)[kept], other.float().reshape(count - 1, -1)
        if (by_row - rest).norm() > _CHANGED * by_row.norm():
            return _named(module, name)
    return ""


def _comparable(output: Tensor, other: Tensor, count: int) -> bool:
    rows = len(output) if output.dim() else 0
    return (
        rows > 0
        and rows % count == 0
        and other.dim() == output.dim()
        and len(other) == rows // count * (count - 1)
        and output.shape[1:] == other.shape[1:]
    )


def _outputs(step: _Step, rows: Sequence[int]) -> list[tuple[nn.Module, str, Tensor]]:
    """The outputs of all modules for these rows, in order of execution."""
    seen: list[tuple[nn.Module, str, Tensor]] = []

    def see(name: str, module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            seen.append((module, name, output.detach()))

    handles = [
        module.register_forward_hook(partial(see, name.replace("_module.", "")))
        for name, module in step.model.named_modules()
    ]
    try:
        step.forward(rows)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _named(module: nn.Module, name: str) -> str:
    called = f"{name} ({type(module).__name__})" if name else type(module).__name__
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return (
            f"Likely cause: {called} normalises each row by the others; replace it by GroupNorm, as "
            "opacus.validators.ModuleValidator.fix(model) does."
        )
    return f"Likely cause: the output of {called} for one row depends on the others; see its forward method."


def _taken(batch: Any, rows: list[int]) -> Any:
    if isinstance(batch, Tensor | np.ndarray):
        return batch[rows] if batch.ndim else batch
    if isinstance(batch, MutableMapping):
        part = copy.copy(batch)
        part.update({name: _taken(value, rows) for name, value in batch.items()})
        return part
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_taken(part, rows) for part in batch))
    # A list of tensors holds the parts of a batch. Any other list has an entry for each row.
    if isinstance(batch, tuple) or (
        isinstance(batch, list) and any(isinstance(x, Tensor | np.ndarray) for x in batch)
    ):
        return type(batch)(_taken(part, rows) for part in batch)
    if isinstance(batch, list):
        return [batch[row] for row in rows]
    return batch


def _length(batch: Any) -> int:
    """The number of rows in a batch: the common length of its tensors."""
    lengths = {len(one) for one in leaves(batch) if isinstance(one, Tensor | np.ndarray) and one.ndim}
    if len(lengths) != 1:
        raise InputError(
            "batch must hold tensors with one entry for each row, all of the same length, got lengths "
            f"{sorted(lengths) or 'of none'}"
        )
    return lengths.pop()
