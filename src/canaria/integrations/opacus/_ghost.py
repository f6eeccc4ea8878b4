"""Sums that a model clips by ghost: the program must not change them before noise is added."""

from collections.abc import Callable, Sequence
from typing import Any

from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria.integrations.opacus._versions import GhostClipper
from canaria.training.findings import Findings

_Seen = list[tuple[Tensor | None, int]]


class _Noted:
    """A method of a clipper that is followed by a call of the audit; a copy of the clipper gets its own."""

    def __init__(self, clipper: GhostClipper, note: Callable[[], None]) -> None:
        self._clipper, self._note = clipper, note
        self._given = vars(clipper).get("enable_hooks")
        self._own = clipper.enable_hooks

    def __call__(self) -> None:
        self._own()
        self._note()

    def __reduce__(self) -> Any:
        # Otherwise a copy of the model would hold one of the audit and of the optimizer.
        return getattr, (self._clipper, "enable_hooks")

    def undo(self) -> None:
        del self._clipper.enable_hooks
        if self._given is not None:
            self._clipper.enable_hooks = self._given


class GhostSums:
    """Notes the clipped sums as a backward pass leaves them, and compares when the optimizer takes them.

    Without ghost clipping the optimizer clips and adds noise in one call. With it, the clipped sum waits in
    `grad`, where a program may scale it or add to it. Versions of tensors are compared, not their values,
    which costs no call on a GPU.
    """

    def __init__(self, optimizer: DPOptimizer, clippers: Sequence[GhostClipper]) -> None:
        # Asking Opacus for the parameters in each step takes longer than looking at them.
        self._parameters, self._clippers = list(optimizer.params), clippers
        self._left: _Seen | None = None
        self.changed: dict[int, int] = {}
        """The parameters whose sums changed, by number, and the first such step."""
        for clipper in clippers:
            # Opacus calls this at the end of the second backward pass, and at no other time.
            clipper.enable_hooks = _Noted(clipper, self._note)

    def _note(self) -> None:
        self._left = self._now()

    def _now(self) -> _Seen:
        grads = [parameter.grad for parameter in self._parameters]
        return [(grad, 0 if grad is None else grad._version) for grad in grads]

    def compare(self, step: int) -> None:
        """Compare with the end of the backward pass, just before the optimizer takes the sums."""
        left, self._left = self._left, None
        if left is None:
            return
        for place, (before, now) in enumerate(zip(left, self._now(), strict=True)):
            if before[0] is not now[0] or before[1] != now[1]:
                self.changed.setdefault(place, step)

    def findings(self, names: Sequence[str]) -> Findings:
        """The change, and when it is harmless, as a doubt."""
        if not self.changed:
            return Findings()
        which = ", ".join(names[place] for place in sorted(self.changed)[:3])
        more = f" and {len(self.changed) - 3} more" if len(self.changed) > 3 else ""
        told = (
            f"gradients of {which}{more} changed between clipping and noise, first in step "
            f"{min(self.changed.values())}: the noise is for what the clipper left. This is harmless only if "
            "no row can add more than before, as with clip_grad_norm_"
        )
        return Findings(doubts=(told,))

    def undo(self) -> None:
        for clipper in self._clippers:
            if isinstance(noted := vars(clipper).get("enable_hooks"), _Noted):
                noted.undo()
