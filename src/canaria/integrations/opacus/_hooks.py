"""Functions that an audit inserts into the steps of a private optimizer; for versions see `_internals.py`."""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from opacus.optimizers import DPOptimizer
from torch import Tensor
from torch.optim import optimizer as torch_optimizer

from canaria.integrations.opacus._internals import ADD_NOISE, CALLS, CLIP, clips_by_ghost
from canaria.training.findings import Findings

_ACCUMULATE, _SCALE, _BEFORE_STEP, _HOOK = "accumulate", "scale_grad", "pre_step", "step_hook"
_Called: TypeAlias = Callable[[], None]


class Hooks:
    """Calls functions at certain points of a step, until `undo`.

    Args:
        optimizer: The private optimizer.
        clipping: Before gradients of a batch are clipped and summed (with ghost clipping: summed).
        noise: Before noise is added to the clipped sum.
        noised: After noise was added, before the accountant counts the step.
        scaled: Before the private optimizer's step hook. Programs may change gradients in it, which are
            noisy and scaled by then, but not reduced over processes.
        update: Before the wrapped optimizer uses the gradients, after noise, scaling and reduction. It runs
            before other hooks, because changes by them are no longer part of the mechanism.
        last: At the same point, after all other hooks.
        updated: After the wrapped optimizer has used the gradients, before other hooks.

    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        *,
        clipping: _Called,
        noise: _Called,
        noised: _Called,
        scaled: _Called,
        update: _Called,
        last: _Called,
        updated: _Called,
    ) -> None:
        self._methods = [
            _Before(optimizer, _ACCUMULATE if clips_by_ghost(optimizer) else CLIP, clipping),
            _Before(optimizer, ADD_NOISE, noise),
            # Opacus calls `scale_grad` between the noise and the step hook of the accountant.
            _Before(optimizer, _SCALE, noised),
            _Before(optimizer, _HOOK, scaled),
            _Before(optimizer, _BEFORE_STEP, self._renew),
        ]
        wrapped: Any = optimizer.original_optimizer
        first = wrapped.register_step_pre_hook(lambda *_: update())
        wrapped._optimizer_step_pre_hooks.move_to_end(first.id, last=False)
        self._last = wrapped.register_step_pre_hook(lambda *_: last())
        after = wrapped.register_step_post_hook(lambda *_: updated())
        wrapped._optimizer_step_post_hooks.move_to_end(after.id, last=False)
        self._before_update = wrapped._optimizer_step_pre_hooks
        self._handles = [first, self._last, after]

    def _renew(self) -> None:
        """Restore the position of our hooks, since programs replace methods and add hooks after `attach`.

        This must not run while hooks run, when their order must not change.
        """
        for method in self._methods:
            method.renew()
        self._before_update.move_to_end(self._last.id)

    def undo(self) -> None:
        """Restore the original methods and hooks."""
        for method in self._methods:
            method.undo()
        for handle in self._handles:
            handle.remove()


class _Before:
    """Calls `do` before each call of a method of an optimizer, if it has this method, until `undo`."""

    def __init__(self, optimizer: DPOptimizer, method: str, do: _Called) -> None:
        self._optimizer, self._method, self._do = optimizer, method, do
        self._inside = False
        self._own: Any = None
        self._both: Any = None
        self.renew()

    def renew(self) -> None:
        """If the program has replaced the method, call `do` before the new one."""
        own = getattr(self._optimizer, self._method)
        if own is None or own is self._both:
            return

        @functools.wraps(own)
        def both(*args: Any, **how: Any) -> Any:
            if self._inside:  # the program's method calls the one it replaced, an earlier `both`
                return own(*args, **how)
            self._inside = True
            try:
                self._do()
                return own(*args, **how)
            finally:
                self._inside = False

        setattr(both, CALLS, own)
        self._own, self._both = own, both
        setattr(self._optimizer, self._method, both)

    def undo(self) -> None:
        """Restore the method, unless the program has replaced it: then its method keeps calling this one."""
        if getattr(self._optimizer, self._method) is self._both:
            setattr(self._optimizer, self._method, self._own)


_wrapped: Final["weakref.WeakSet[Any]"] = weakref.WeakSet()
"""The optimizers that private ones wrap. What they train gets noise."""


class Others:
    """Counts the steps of other optimizers between private ones, on tensors that are not watched.

    A generator whose loss is a private discriminator is trained in this way too, and leaks nothing. So this
    is no contradiction.
    """

    def __init__(self, optimizer: DPOptimizer, watched: Iterable[Tensor]) -> None:
        self._own = optimizer.original_optimizer
        _wrapped.add(self._own)
        self._watched = {id(parameter) for parameter in watched}
        self._steps = self._waiting = 0
        # torch keeps the hook for good: it must not keep the audit.
        own = weakref.ref(self)
        self._handle = torch_optimizer.register_optimizer_step_post_hook(
            lambda other, *_: None if (one := own()) is None else one._count(other)
        )
        weakref.finalize(self, self._handle.remove)

    def _count(self, other: Any) -> None:
        if isinstance(other, DPOptimizer) or other in _wrapped:
            return
        trained = {id(one) for group in other.param_groups for one in group["params"]}
        self._waiting += not trained <= self._watched

    def before_step(self) -> None:
        """Call this before each private step: what came after the last one may be another training."""
        self._steps, self._waiting = self._steps + self._waiting, 0

    def undo(self) -> None:
        """Stop counting. What the optimizer does from now on is not private as far as an audit knows."""
        _wrapped.discard(self._own)
        self._handle.remove()

    def findings(self) -> Findings:
        """What was trained beside the model, as a doubt."""
        if not self._steps:
            return Findings()
        told = (
            f"another optimizer made {self._steps} steps on weights outside of the audited model, which "
            "leaks without limit unless their gradients come through the noise or from public data"
        )
        return Findings(doubts=(told,), untested={"weights": "another optimizer trained too, see the note"})
