"""From an epsilon down to a bound: the part of epsilon that each gap takes.

If everything is known about a mechanism, the order of the paper is used (`gaps`): epsilon, interference,
outputs, elements. DP-SGD has no finite epsilon at delta = 0, so its ladder starts at the claim. The first
step is the leak of the most exposed canary of a run to someone who knows all other bits:

    claim -> outputs -> E max p(|loss|), others known -> interference -> E max p(|loss|), others hidden
          -> elements -> efficacy of the guesses that were taken -> chance -> bound.

No step but the last goes up. Revealing bits spreads a posterior, and the largest posterior is convex
(Jensen). A mean of the k largest is at most the largest. The first step is cut at the claim. The last step is
the cost of the finite number of guesses, of many looks, of delta and of the confidence, and luck.
"""

from typing import Final

import numpy as np
from scipy import special

from canaria._core import seeds
from canaria._core.arrays import Bits, Floats
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound
from canaria.bounds.parts import CLAIM, Ladder
from canaria.mechanisms._protocol import Output
from canaria.mechanisms.dpsgd import SubsampledGaussian
from canaria.theory.efficacy import THEORY, Accuracy, top_mean
from canaria.theory.gaps import Gaps

_WORK: Final = 20_000_000
"""Steps times coordinates that are simulated: a few seconds."""
_MOST_GAMES: Final = 50


def ladder_of_gaps(found: Gaps, bound: Bound) -> Ladder | None:
    """The ladder of a mechanism whose gaps are known; None if its epsilon or the bound is infinite.

    Args:
        found: The gaps of the mechanism, from `canaria.theory.gaps`.
        bound: The bound at the end of the ladder.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import RandomizedResponse
        >>> from canaria.game.ladders import ladder_of_gaps
        >>> from canaria.theory import gaps
        >>> bound = play(RandomizedResponse(2.0), n=500, rng=0).bound()
        >>> ladder = ladder_of_gaps(gaps(RandomizedResponse(2.0), n=500, k=bound.tally.taken), bound)
        >>> {step.gap: round(step.epsilon, 2) for step in ladder.steps}
        {'interference': 2.0, 'outputs': 2.0, 'elements': 2.0, 'chance': 1.6}
    """
    if not np.isfinite(found.epsilon):
        return None
    levels = {
        "interference": found.ddp,
        "outputs": found.average_case.epsilon,
        "elements": found.efficacy.epsilon,
    }
    how = f"{found.efficacy.how}, for {found.k} of {found.n} guesses"
    return Ladder.falling("the mechanism's epsilon", found.epsilon, levels, bound.epsilon, how)


def ladder_of_dpsgd(
    mechanism: SubsampledGaussian, n: int, claimed: float, bound: Bound, rng: Seed = 0
) -> Ladder | None:
    """The ladder of DP-SGD, from simulated runs with the stated noise.

    None if the bound lies above the claim, or the claim is infinite.

    Args:
        mechanism: DP-SGD with its stated settings.
        n: The number of canaries.
        claimed: The claimed epsilon, at the top of the ladder.
        bound: The bound at the end of the ladder.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; the default is the fixed seed 0.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import SubsampledGaussian
        >>> mechanism = SubsampledGaussian(dimension=250, steps=20, sample_rate=0.2, noise_multiplier=2.0)
        >>> bound = play(mechanism, n=1000, rng=0).bound(1e-5)
        >>> [step.gap for step in ladder_of_dpsgd(mechanism, 1000, 2.0, bound).steps]
        ['outputs', 'interference', 'elements', 'chance']
    """
    if not bound.epsilon <= claimed < np.inf:
        return None
    # A large run is simulated on a part of its coordinates, which do not influence each other: the means are
    # the same but for the largest |loss|, which `how` says.
    coordinates = min(mechanism.dimension, n)
    per_game = coordinates * mechanism.steps * (-(-n // coordinates) + 1)
    share = min(1.0, _WORK / per_game)
    used = max(1, round(coordinates * share))
    size = max(1, round(n * used / coordinates))
    games = int(min(_MOST_GAMES, max(1, _WORK // per_game)))
    model = SubsampledGaussian(
        dimension=used,
        steps=mechanism.steps,
        sample_rate=mechanism.sample_rate,
        noise_multiplier=mechanism.noise_multiplier,
    )
    generator = seeds.generator(rng, THEORY)
    bits = generator.choice(np.array([-1, 1], dtype=np.int8), (games, size))
    output = model.sample(bits, generator)
    hidden = special.expit(np.abs(model.loss(output, np.zeros_like(bits))))
    count = max(1, round((bound.tally.taken or n) * size / n))
    levels = {
        "outputs": _level(special.expit(_largest_when_known(output, bits, used)).mean()),
        "interference": _level(hidden.max(axis=1).mean()),
        "elements": _level(top_mean(hidden, count).mean()),
    }
    how = f"{games} simulated run{'s' * (games > 1)} with the stated noise, {size} canaries each"
    if size < n:
        how += f" of {n}, among which the most exposed would show more"
    return Ladder.falling(CLAIM, claimed, levels, bound.epsilon, how)


def _largest_when_known(output: Output, bits: Bits, coordinates: int) -> Floats:
    """The largest |loss| of each game for someone who knows all other bits: |L(m + 1) - L(m)|.

    m is the number of other included elements on the coordinate of the element.
    """
    places = np.arange(bits.shape[1]) % coordinates
    included = np.stack([np.bincount(places, weights=row > 0, minlength=coordinates) for row in bits])
    others = included[:, places].astype(np.int64) - (bits > 0)
    tables = output[:, places]
    with_it, without = (np.take_along_axis(tables, (others + k)[..., None], -1)[..., 0] for k in (1, 0))
    return np.asarray(np.abs(with_it - without).max(axis=1))


def _level(accuracy: float) -> float:
    return Accuracy(float(accuracy)).epsilon
