"""A clipper that is not Opacus's own, tried with gradients of several sizes."""

import math
from contextlib import suppress
from typing import Final

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria.integrations.opacus import _internals
from canaria.training.conformance.clipping import PROBES, amplified

_ROWS: Final = (len(PROBES), len(PROBES) + 2)
"""Probes are tried in two batches, which have rows without a gradient as well."""
_SAME: Final = 1.01
"""Factors within this ratio are one factor: rounding moves them by less."""


def faults_of_clipper(optimizer: DPOptimizer) -> tuple[str, ...]:
    """A gradient that weighs more than the clip norm after clipping; empty if there is none.

    Opacus's own clipper is known not to do that, and with ghost clipping the model clips. The clipper may
    keep a state, such as a mean of norms, that probes would change: ask when training is done.
    """
    known = _internals.clips_as_opacus(optimizer) or _internals.clips_by_ghost(optimizer)
    if known or _internals.is_sharded(optimizer) or not _internals.clips_flat(optimizer):
        return ()
    with suppress(Exception), torch.no_grad():  # a clipper may refuse gradients that it did not expect
        weights = torch.minimum(*(_weights(optimizer, rows) for rows in _ROWS))
        factors = weights / weights.new_tensor(PROBES)
        # A clipper may compute factors elsewhere, for the rows of a real batch. Those do not fit two batches
        # of different sizes, unless there is one factor for all.
        if factors.max() > _SAME * factors.min():
            heaviest = int(weights.argmax())
            return amplified(PROBES[heaviest], float(weights[heaviest]))
    return ()


def _weights(optimizer: DPOptimizer, rows: int) -> Tensor:
    """The weights of the probes after clipping, in clip norms; 0 where they are not numbers.

    The gradient of probe i is the same in weights i, i + n, i + 2 n, ... of every parameter, for n probes,
    and 0 elsewhere. So each spans all parameters, and has weights of its own in the sum.
    """
    norm, count = _internals.clip_norm_of(optimizer), len(PROBES)
    gradients = [parameter.new_zeros(rows, *parameter.shape) for parameter in optimizer.params]
    for place, size in enumerate(PROBES):
        own = [gradient.view(rows, -1)[place, place::count] for gradient in gradients]
        for part in own:
            part.fill_(norm * size / math.sqrt(sum(map(Tensor.numel, own))))
    sums, adapted = _internals.clipped_alone(optimizer, gradients)
    parts = [torch.cat([one.reshape(-1)[place::count].double() for one in sums]) for place in range(count)]
    # A clipper that adapts the clip norm to its rows has the noise adapted as well.
    return torch.stack([part.norm() for part in parts]).nan_to_num(0, 0, 0) / max(norm, adapted)
