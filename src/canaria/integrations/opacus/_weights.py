"""Checks that weights change only by the steps of the private optimizer.

Noise protects the gradient that the private optimizer uses. Any other change of a weight is unprotected: a
layer under a plain optimizer, plain steps between private epochs, a manual change. So a checksum of each
trainable parameter is taken after each private step and again before the next one. Both must be equal.

What the optimizer keeps between steps, such as momentum, is compared in the same way.

A checksum is the sum of the bits of all weights, read as integers. Any change of a single bit changes it, but
a permutation does not. It is computed on the device of the weights, without waiting for the result.

Changes that use only the weights themselves, such as clamping, leak nothing, but they look like all others. A
program can state that its changes are of this kind (`attach(..., changes_weights=True)`). They are then
doubts, not contradictions.
"""

import weakref
from collections.abc import Iterable, Sequence
from typing import Final

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from canaria.integrations.opacus._head import CanaryEmbedding
from canaria.integrations.opacus._hooks import Others
from canaria.integrations.opacus._internals import local_part
from canaria.integrations.opacus._items import leaves
from canaria.integrations.opacus._versions import GhostClipper
from canaria.training.conformance.names import numbered
from canaria.training.findings import Findings

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers by the number of bytes of a weight."""
COSTLY = ("cuda",)
"""The kinds of devices on which each call takes time."""
_FIRST: Final = 64
"""Between the first steps, this many, all parameters are compared on every device."""
_ONE_OF: Final = 32
"""On a GPU, one of this many later steps is compared, and one of the gaps between steps.

Each kernel launch takes time: comparing in every gap costs 3% of a short step, this less than 1%. It compares
in every gap as soon as torch's own counters show that something wrote to a parameter between two steps.
"""
_WAITING: Final = 64
"""Checksums are fetched from the device in groups of this many steps, since waiting takes time."""
_HARMLESS: Final = "which leaks without limit unless it uses only noisy gradients, weights or public data"
_DECLARE: Final = "if so, say changes_weights=True when you attach"
_SHOWN: Final = 3
"""The number of names that are listed."""
_audited: "weakref.WeakSet[DPOptimizer]" = weakref.WeakSet()
"""Private optimizers that are audited. What they train is private."""


class Weights:
    """Watches the parameters of an optimizer, and of its model if that is known.

    `declared` says that the program changes weights only by functions of the weights.
    """

    def __init__(
        self, optimizer: DPOptimizer, model: nn.Module | GhostClipper | None, *, declared: bool = False
    ) -> None:
        self._declared = declared
        self._optimizer, self._model = optimizer, None if model is None else module_of(model)
        _audited.add(optimizer)
        self._costly = optimizer.params[0].device.type in COSTLY
        self._steps, self._thorough = 0, False
        self._versions: list[int] = []
        self._names: list[str] = []
        self._watched: list[Tensor] = []
        self._own: list[Tensor] = []
        self._open = False
        self._sums = torch.zeros(0)
        self._gaps: list[int] = []
        self._known: list[set[int]] = []
        self._moved: dict[int, int] = {}
        self._buffers: dict[str, Tensor] = {}
        self._frozen: dict[str, int] = {}
        self._states: set[int] = {0}
        self._state_changed = 0
        self._gradients: list[int] = []
        self._gradients_changed = 0
        self._others: Others | None = None

    def before_step(self) -> None:
        """Call this before the private optimizer changes the weights by the current gradients."""
        if not self._watched:
            self._begin()
            return
        if self._others is not None:
            self._others.before_step()
        if self._versions != self._written():
            self._thorough = True

    def note_gradients(self) -> None:
        """Call this when the gradients are read, at most once in a step."""
        step = self._steps + 1
        due = not self._costly or step <= _FIRST or step % _ONE_OF == 0
        self._gradients = self._gradients_now(step) if due and not self._gradients_changed else []

    def after_step(self) -> None:
        """Call this after the private optimizer has changed the weights."""
        self._steps += 1
        self._versions = self._written()
        few = self._costly and self._steps > _FIRST and not self._thorough
        self._open = not few or self._steps % _ONE_OF == 0
        if self._open:
            self._note_state()
            self._take(0)

    def before_update(self) -> None:
        """Call this after all hooks: later changes by the optimizer's own step are allowed."""
        if self._gradients and self._gradients != self._gradients_now(self._steps + 1):
            self._gradients_changed = self._steps + 1
        if not self._open:
            return
        self._open = False
        self._compare_state()
        self._take(1)
        self._gaps.append(self._steps)
        if len(self._gaps) == _WAITING:
            self._compare()

    def _note_state(self) -> None:
        if (now := self._state_now()) is not None:
            self._states.add(now)

    def _compare_state(self) -> None:
        """Note if something changed what the optimizer keeps between steps.

        A state that it had before or after an earlier step was restored from a copy, which leaks nothing new.
        """
        now = self._state_now()
        if now is not None and now not in self._states and not self._state_changed:
            self._state_changed = self._steps

    def _state_now(self) -> int | None:
        """A checksum of what the optimizer keeps, 0 if it is empty; None after the first steps.

        It is twice as large as the weights for Adam, and a copy that is restored must be known.
        """
        if self._steps > _FIRST:
            return None
        held = leaves(self._optimizer.state)
        return sum(int(checksum(one)) for one in held if isinstance(one, Tensor))

    def _gradients_now(self, step: int) -> list[int]:
        """A checksum of the gradients; on a GPU, after the first steps, torch's version counters.

        A checksum has to be waited for. Counters miss writes to `.data`.
        """
        if self._costly and step > _FIRST:
            held = [parameter.grad for parameter in self._own]
            return [0 if one is None else id(one) ^ one._version for one in held]
        return [int(checksum_of(gradients_of(self._optimizer)))]

    def _written(self) -> list[int]:
        """The number of writes to each parameter, by torch's counters, which miss writes to `.data`."""
        return [parameter._version for parameter in self._watched]

    def _begin(self) -> None:
        """Collect all trained parameters when training begins. Before, weights may be loaded or frozen."""
        private = {id(parameter) for parameter in self._optimizer.params}
        named = names_of(self._optimizer, self._model)
        found = dict(zip(named, self._optimizer.params, strict=True))
        if self._model is not None:
            found |= {
                name: parameter
                for name, parameter in self._model.named_parameters()
                if parameter.requires_grad and id(parameter) not in private
            }
            self._buffers = {name: value.detach().clone() for name, value in _buffers(self._model)}
            self._frozen = {
                name: int(checksum(p)) for name, p in self._model.named_parameters() if name not in found
            }
        self._names, self._watched = list(found), list(found.values())
        self._others = Others(self._optimizer, self._watched)
        self._own = list(self._optimizer.params)  # Opacus makes this list anew whenever it is asked
        self._known = [{int(checksum(parameter))} for parameter in self._watched]
        device = self._watched[0].device
        self._sums = torch.zeros(_WAITING, 2, len(found), dtype=torch.int64, device=device)
        # A hook of the program may change them before the first update.
        self._note_state()
        self._open = True
        self._take(0)

    def _take(self, end: int) -> None:
        """Store the checksums at the beginning (0) or at the end (1) of a gap, without waiting for them."""
        sums = self._sums[len(self._gaps), end]
        for parameter, total in zip(self._watched, sums, strict=True):
            torch.sum(_bits(parameter), 0, dtype=torch.int64, out=total)

    def _compare(self) -> None:
        """Fetch and compare the stored checksums.

        A parameter that returns to its value after an earlier step was restored from a copy. That leaks
        nothing new: averages of weights are kept apart, and swapped in and out between two steps.
        """
        fetched = self._sums[: len(self._gaps)].tolist()
        for step, (begun, ended) in zip(self._gaps, fetched, strict=True):
            for place, (known, before, after) in enumerate(zip(self._known, begun, ended, strict=True)):
                known.add(before)
                if after not in known:
                    self._moved.setdefault(place, step)
        if self._gaps:  # the beginning of a gap that is still open moves to the front
            self._sums[0, 0] = self._sums[len(self._gaps) % _WAITING, 0]
        self._gaps.clear()

    def undo(self) -> None:
        """Stop watching other optimizers."""
        if self._others is not None:
            self._others.undo()

    def findings(self) -> Findings:
        """Changes outside the private optimizer, and of buffers.

        Changes that may use only the weights, and would then leak nothing, are doubts.
        """
        changed = self._changed()
        certain, possible = ((), changed) if self._declared else (changed, ())
        buffers, doubts = self._changed_buffers(), (*possible, *self._changed_later())
        excuse = "only the optimizer's own; pass model= to attach to watch all" if self._model is None else ""
        if buffers or doubts:
            excuse = "something changed without noise, see the note"
        return Findings(
            contradictions=(*self._trained_otherwise(), *certain),
            remarks=buffers,
            doubts=doubts,
            untested={"weights": excuse},
        ) + (Findings() if self._others is None else self._others.findings())

    def _changed(self) -> list[str]:
        """Changes by other code of the private optimizer's weights and gradients."""
        self._compare()
        own = {id(parameter) for parameter in self._optimizer.params}
        inside = [place for place in self._moved if id(self._watched[place]) in own]
        found = []
        if inside:
            found.append(
                f"{self._named(inside)} changed after step {min(self._moved[place] for place in inside)} by "
                f"something other than the private optimizer, {_HARMLESS}"
            )
        if self._gradients_changed:
            found.append(
                f"a hook of the optimizer changed gradients after noise was added, first in step "
                f"{self._gradients_changed}, {_HARMLESS}"
            )
        if self._state_changed:
            found.append(
                f"the state of the optimizer, such as its momentum, changed after step {self._state_changed} "
                f"by something other than its steps, {_HARMLESS}"
            )
        return found if self._declared else [f"{one}; {_DECLARE}" for one in found]

    def _trained_otherwise(self) -> list[str]:
        """Parameters that are trained without the private optimizer."""
        self._compare()
        private = {id(p) for optimizer in [*_audited, self._optimizer] for p in optimizer.params}
        outside = [place for place in self._moved if id(self._watched[place]) not in private]
        if not outside:
            return []
        return [
            f"{self._named(outside)} changed during training without being trained by the private "
            "optimizer, which leaks without limit: noise is not added there"
        ]

    def _changed_later(self) -> list[str]:
        """Changes of weights after the last step, and of frozen ones: averages, or further training."""
        found = []
        if self._open:
            self._compare()
            begun = zip(self._names, self._watched, self._sums[0, 0].tolist(), strict=True)
            ends = [name for name, parameter, before in begun if int(checksum(parameter)) != before]
            if ends:
                found.append(f"{_listed(ends)} changed after the last private step, {_HARMLESS}")
        weights = {} if self._model is None else dict(self._model.named_parameters())
        frozen = [n for n, old in self._frozen.items() if n in weights and int(checksum(weights[n])) != old]
        if frozen:
            found.append(
                f"{_listed(frozen)}, not trained by the private optimizer, changed during training, "
                f"{_HARMLESS}"
            )
        return found

    def _changed_buffers(self) -> tuple[str, ...]:
        """Changes of buffers, which are not weights."""
        if self._model is None:
            return ()
        now = dict(_buffers(self._model))
        buffers = [n for n, old in self._buffers.items() if n in now and not _same(old, now[n])]
        if not buffers:
            return ()
        return (
            f"{_listed(buffers)} changed during training: buffers get no noise, so ε does not cover them",
        )

    def _named(self, places: Sequence[int]) -> str:
        return _listed([self._names[place] for place in sorted(places)])


def names_of(optimizer: DPOptimizer, model: nn.Module | GhostClipper | None) -> tuple[str, ...]:
    """The names of the optimizer's parameters, or their number and shape if the model is not known."""
    known: dict[int, str] = {}
    if model is not None:
        known = {id(parameter): name for name, parameter in module_of(model).named_parameters()}
    numbers = numbered([tuple(parameter.shape) for parameter in optimizer.params])
    return tuple(known.get(id(p), number) for p, number in zip(optimizer.params, numbers, strict=True))


def module_of(model: nn.Module | GhostClipper) -> nn.Module:
    """The module that the program wrote, without the wrappers of Opacus and DDP."""
    inner = getattr(model, "_module", None) or getattr(model, "module", None)
    if isinstance(inner, nn.Module) and type(model).__module__.startswith(("opacus.", "torch.nn.parallel")):
        return module_of(inner)
    assert isinstance(model, nn.Module)
    return model


def checksum(values: Tensor) -> Tensor:
    """The sum of the bits of the local part of the values, on their device."""
    return _bits(values).sum(dtype=torch.int64)


def gradients_of(optimizer: DPOptimizer) -> list[Tensor]:
    """The gradients of an optimizer's parameters that have one."""
    return [parameter.grad for parameter in optimizer.params if parameter.grad is not None]


def checksum_of(values: Sequence[Tensor]) -> Tensor:
    """The sum of the bits of the local parts of all values, on their device.

    They are concatenated first, because summing each would take a call for each.
    """
    bits: dict[torch.dtype, list[Tensor]] = {}
    for part in map(_bits, values):
        bits.setdefault(part.dtype, []).append(part)
    total = torch.zeros((), dtype=torch.int64, device=values[0].device if values else None)
    for parts in bits.values():
        total += torch.cat(parts).sum(dtype=torch.int64)
    return total


def _bits(parameter: Tensor) -> Tensor:
    """The local part of a parameter, as integers."""
    part = local_part(parameter)
    if part.is_complex():
        part = torch.view_as_real(part)
    return part.reshape(-1).view(_INTEGERS[part.element_size()])


def _buffers(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """The buffers of a model but for those of a canary head, which are the audit's own."""
    for name, part in model.named_modules():
        if not isinstance(part, CanaryEmbedding):
            for own, buffer in part.named_buffers(name, recurse=False):
                if buffer.is_floating_point():
                    yield own, buffer


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one == other.to(one.device)).all())


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
