"""What each step adds to the clipped sum, over the first weights of every parameter."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria.integrations.opacus._places import FINE
from canaria.training.conformance.halves import Halves, contradictions
from canaria.training.conformance.residuals import EDGES, beside_the_noise
from canaria.training.findings import Findings

_MOST: Final = 2**18
"""Weights of a parameter. A copy of all would need as much memory as the model."""
_LOOKED_AT: Final = 16
"""Half precision is looked for in this many steps, since each number is fetched from the device."""
_FEW: Final = 4096
"""The numbers of a parameter in which half precision is looked for."""
_FIRST: Final = 64
_ONE_OF: Final = 64
"""All of the first steps are read, and one in 64 later ones, since each reading takes some twenty calls."""


class Residuals:
    """Reads the sum before noise and after it, if all of both is in this process and in single precision."""

    def __init__(self, optimizer: DPOptimizer, *, alone: bool) -> None:
        self._optimizer = optimizer
        self._parameters = [p for p in optimizer.params if p.dtype in FINE] if alone else []
        self._sizes = [min(parameter.numel(), _MOST) for parameter in self._parameters]
        self._before: Tensor | None = None
        self._edges = torch.tensor(EDGES, device=optimizer.params[0].device)[:, None]
        self._seen: list[Tensor] = []
        self._steps = 0
        self._halves = [Halves() for _ in self._parameters]

    @property
    def due(self) -> bool:
        """Whether this step is read."""
        return self._steps < _FIRST or self._steps % _ONE_OF == 0

    def before_noise(self) -> None:
        """Call this when the clipped sum is complete."""
        due, self._steps = self.due, self._steps + 1
        self._before = self._flat("summed_grad") if due and self._parameters else None

    def before_scaling(self, deviation: float) -> None:
        """Call this when the gradient is the noisy sum; noise has this deviation."""
        if self._before is None or self._steps > _LOOKED_AT:
            return
        before = torch.split(self._before, self._sizes)
        for halves, parameter, clean in zip(self._halves, self._parameters, before, strict=True):
            if parameter.grad is not None:
                noisy = parameter.grad.detach().reshape(-1)[:_FEW]
                few = torch.stack([noisy, clean[:_FEW]]).double().cpu().numpy()
                halves.add(few[0], few[1], deviation)

    def after_noise(self, scale: float, deviation: float) -> None:
        """Call this when the gradient is the noisy sum divided by `scale`; noise has this deviation."""
        before, self._before = self._before, None
        after = None if before is None else self._flat("grad")
        if before is None or after is None or deviation <= 0:
            return
        noise = torch.sub(after * scale, before) / deviation
        # The squares of a small sum would all be 0, and its norm, too.
        least, largest = torch.finfo(before.dtype).tiny, before.abs().amax()
        scaled = before / largest.clamp(min=least)
        along = noise @ scaled / scaled.norm().clamp(min=least)
        lengths = torch.stack(torch._foreach_norm(torch.split(noise, self._sizes)))
        coarse = largest * torch.finfo(before.dtype).eps / deviation
        sizes = noise.abs()
        beyond = ((sizes > self._edges).sum(dim=1) + (sizes >= self._edges).sum(dim=1)).to(noise.dtype) / 2
        self._seen.append(torch.cat([torch.stack([along, coarse]), beyond, lengths.square()]))

    def _flat(self, name: str) -> Tensor | None:
        """The first weights of each parameter, one after the other; None if one has no such tensor."""
        held = [getattr(parameter, name, None) for parameter in self._parameters]
        parts = [(one, size) for one, size in zip(held, self._sizes, strict=True) if one is not None]
        if len(parts) < len(held):
            return None
        return torch.cat([one.detach().reshape(-1)[:size] for one, size in parts])

    def findings(self, names: Sequence[str]) -> Findings:
        """What is wrong with the noise; `names` are those of the optimizer's parameters."""
        halves = Findings(contradictions=contradictions(self._halves))
        if not self._seen:
            return halves
        seen = torch.stack(self._seen).double().cpu().numpy()
        read = {id(parameter) for parameter in self._parameters}
        names = [name for name, one in zip(names, self._optimizer.params, strict=True) if id(one) in read]
        found = beside_the_noise(seen, np.array(self._sizes, dtype=np.float64), names)
        return halves + Findings(contradictions=found)
