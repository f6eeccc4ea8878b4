"""A clipper that is not Opacus's own, tried with gradients of several sizes."""

from contextlib import suppress

from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria.integrations.opacus._internals import (
    clip_norm_of,
    clipped_alone,
    clips_as_opacus,
    clips_by_ghost,
    clips_flat,
    is_sharded,
)
from canaria.training.canaries.designs import PROBES, amplified


def faults_of_clipper(optimizer: DPOptimizer) -> tuple[str, ...]:
    """A gradient that weighs more than the clip norm after clipping; empty if there is none.

    Opacus's own clipper is known not to do that, and with ghost clipping the model clips.
    """
    known = clips_as_opacus(optimizer) or clips_by_ghost(optimizer)
    if known or is_sharded(optimizer) or not clips_flat(optimizer):
        return ()
    with suppress(Exception):  # a clipper may refuse gradients that it did not expect
        return amplified(*_heaviest(optimizer))
    return ()


def _heaviest(optimizer: DPOptimizer) -> tuple[float, float]:
    """The size of the probe that weighs most after clipping, and that weight, in clip norms.

    A probe is a row whose gradient is not 0 in one weight of the largest parameter, another one for each.
    """
    norm = clip_norm_of(optimizer)
    parameters = list(optimizer.params)
    sizes = PROBES[: max(map(Tensor.numel, parameters))]
    rows = [parameter.new_zeros(len(sizes), *parameter.shape) for parameter in parameters]
    largest = max(range(len(rows)), key=lambda place: rows[place].numel())
    rows[largest].view(len(sizes), -1).diagonal().copy_(norm * rows[largest].new_tensor(sizes))
    sums, adapted = clipped_alone(optimizer, rows)
    # A clipper that adapts the clip norm to its rows has the noise adapted as well.
    weights = sums[largest].reshape(-1)[: len(sizes)].abs() / max(norm, adapted)
    heaviest = int(weights.argmax())
    return sizes[heaviest], float(weights[heaviest])
