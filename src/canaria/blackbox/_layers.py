"""Layers that give canaries weights of their own; `own.py` does not need torch before one is made."""

from typing import Any

import torch
from torch import Tensor, nn


class OwnHead(nn.Module):
    """An output layer over `known` tokens, and a layer `own_tokens` for the new ones."""

    def __init__(self, head: nn.Module, known: int, count: int, width: int) -> None:
        super().__init__()
        self.head, self.known = head, known
        like = next(head.parameters())
        self.own_tokens = nn.Linear(width, count, bias=False, device=like.device, dtype=like.dtype)
        nn.init.zeros_(self.own_tokens.weight)

    @property
    def weight(self) -> Any:
        """The weights of the layer that was there before; some models ask for their type."""
        return self.head.weight

    @property
    def bias(self) -> Any:
        """The same of its bias."""
        return getattr(self.head, "bias", None)

    def forward(self, hidden: Tensor) -> Tensor:
        """The logits of all tokens."""
        return torch.cat([self.head(hidden)[..., : self.known], self.own_tokens(hidden)], dim=-1)


class OwnUnits(nn.Module):
    """A classifier `model` beside hidden units, one for each canary; `own_units` makes it.

    What a unit answers to is fixed. Only the weights from units to classes are trained.
    """

    detectors: Tensor
    silence: Tensor

    def __init__(self, model: nn.Module, detectors: Tensor, silence: Tensor, classes: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("detectors", detectors)
        self.register_buffer("silence", silence)
        self.own_units = nn.Linear(
            len(detectors), classes, bias=False, device=detectors.device, dtype=detectors.dtype
        )
        nn.init.zeros_(self.own_units.weight)

    def forward(self, rows: Tensor) -> Tensor:
        """The logits of the model, and what the units add to them."""
        units = torch.relu(rows.flatten(1).to(self.detectors.dtype) @ self.detectors.T - self.silence)
        logits: Tensor = self.model(rows) + self.own_units(units)
        return logits
