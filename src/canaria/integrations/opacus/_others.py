"""Other optimizers that step while a model is trained privately: what they train gets no noise."""

import weakref
from collections.abc import Iterable
from typing import Any, Final

from opacus.optimizers import DPOptimizer
from torch import Tensor
from torch.optim import optimizer as torch_optimizer

from canaria.training.findings import Findings

_audited: Final["weakref.WeakSet[Any]"] = weakref.WeakSet()
"""The optimizers that private ones wrap. What they train gets noise."""


class Others:
    """Counts the steps of other optimizers between private ones, on tensors that are not watched.

    A generator whose loss is a private discriminator is trained in this way too, and leaks nothing. So this
    is no contradiction.
    """

    def __init__(self, optimizer: DPOptimizer, watched: Iterable[Tensor]) -> None:
        _audited.add(optimizer.original_optimizer)
        self._watched = {id(parameter) for parameter in watched}
        self._steps = self._waiting = 0
        # torch keeps the hook for good: it must not keep the audit.
        own = weakref.ref(self)
        self._handle = torch_optimizer.register_optimizer_step_post_hook(
            lambda other, *_: None if (one := own()) is None else one._count(other)
        )

    def _count(self, other: Any) -> None:
        if isinstance(other, DPOptimizer) or other in _audited:
            return
        trained = {id(one) for group in other.param_groups for one in group["params"]}
        self._waiting += not trained <= self._watched

    def before_step(self) -> None:
        """Call this before each private step: what came after the last one may be another training."""
        self._steps, self._waiting = self._steps + self._waiting, 0

    def undo(self) -> None:
        """Stop counting."""
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
