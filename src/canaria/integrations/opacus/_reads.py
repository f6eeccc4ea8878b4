"""Gradients without noise: whether the wrapped optimizer reads them while it makes the update."""

from typing import Any, Final

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria.integrations.opacus._internals import WITHOUT_NOISE
from canaria.training.findings import Findings

_FIRST, _ONE_OF = 16, 32
"""The first steps are looked at, then one of this many: it takes a call for each parameter."""
_PROPERTIES: Final = ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_sparse", "layout")
_ABOUT: Final = (
    *(getattr(Tensor, name).__get__ for name in _PROPERTIES),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point, Tensor.zero_),
    *(torch.zeros_like, torch.empty_like),
)
"""Questions that reveal nothing about the rows, except for their number."""
_read: set[str] = set()
"""Not empty after a read. torch calls a method of the class, which knows no audit; steps never overlap."""


class _Noting(Tensor):
    """A tensor that notes that it was read."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function not in _ABOUT:
            _read.add("read")
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


class Reads:
    """Puts tensors that note reads in the place of those without noise, while the wrapped optimizer steps.

    The sum of clipped gradients and the gradients of rows stay on the parameters until `zero_grad`. An update
    that uses them, such as second moments without noise, discloses them.
    """

    def __init__(self, optimizer: DPOptimizer) -> None:
        self._optimizer = optimizer
        self._held: list[tuple[Tensor, str, Tensor]] = []
        self.first = 0
        """The first step in which they were read; 0 if there is none."""

    def begin(self, step: int) -> None:
        """The wrapped optimizer is about to step."""
        if self._held:  # by a step that raised an error
            self._put_back()
        if self.first or (step > _FIRST and step % _ONE_OF):
            return
        for parameter in self._optimizer.params:
            for name in WITHOUT_NOISE:
                value = getattr(parameter, name, None)
                if type(value) is Tensor:  # not of a tensor that is spread over processes
                    self._held.append((parameter, name, value))
                    setattr(parameter, name, value.as_subclass(_Noting))

    def end(self, step: int) -> None:
        """It has stepped: put back what was there."""
        if self._held:
            self.first = step if _read else 0
            self._put_back()

    def _put_back(self) -> None:
        for parameter, name, value in self._held:
            now = getattr(parameter, name, None)
            # The program may have put another tensor there meanwhile, which stays.
            if isinstance(now, _Noting) and now.data_ptr() == value.data_ptr():
                setattr(parameter, name, value)
        self._held.clear()
        _read.clear()

    def findings(self) -> Findings:
        """The read, as a doubt."""
        told = (
            f"the wrapped optimizer read gradients without noise, first in step {self.first}: an update that "
            "depends on them leaks without limit"
        )
        return Findings(doubts=(told,) * bool(self.first))
