"""Tests of the noise at witnesses: its size, place and time, its law, and whether it is used twice.

In correct training, the values z of witnesses, over the stated noise, are independent N(0, 1). Sizes and
signs of such values are independent, and so are different witnesses. Each part has an exact p-value:

    size      the sum of squares, chi-squared;
    steps     the share of each step in it (Beta), which does not depend on the sum: smallest p-value;
              if noise is correlated, also the squares of each step as released (chi-squared);
    places    the same for each witness and for each parameter;
    shape     the number of values of other witnesses beyond 4, of the rest beyond 3, and so on: binomial;
    repeats   how often two steps have the same sign at a witness, and steps at one distance: binomial;
    copies    how often two witnesses have the same sign in a step: any two aligned ones of a parameter, and
              those at one index of two parameters, singly and together; how many signs of a step are
              positive; and how often signs can be predicted from other witnesses: binomial;
    ties      how many pairs of single values nearly coincide: Poisson (see `coincidences`);
    totals    the sum over all weights of a parameter: its squares over the steps (chi-squared), and the
              angles between those of two parameters, and to what is the same in every step (Beta).

The smallest p-value of m tests is corrected as if they were independent (Sidak); as they are pairwise
uncorrelated, this errs by less than the square of the level. Discrete counts get p-values that are uniform by
a random number of the auditor's own.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
from scipy import special, stats

from canaria._core.arrays import Floats, Hits, Integers
from canaria.bounds.conformance import EXTRA, LEAKS, OPEN, Part, needed, sidak
from canaria.training.canaries.witnesses import EDGES, MOST_STEPS, Roles, Seen
from canaria.training.conformance import laws
from canaria.training.conformance.coincidences import near_ties, tie_cause
from canaria.training.conformance.names import named

_CHUNK: Final = 1024
"""Steps are compared with all others in chunks of this many."""
_PREDICTED: Final = 8
"""Signs are predicted in this many steps at a time."""
CERTAIN: Final = 1e-9
"""If p-values are below this, the most informative part is reported, not the one with the smallest."""
PARTS: Final = 14
"""The largest number of parts in a conformance test."""
_LITTLE: Final = 1e-4
"""Less than this share of the usual squares counts as no noise: a hundredth of its size."""
_OF_RELEASED: Final = 1e-3
"""The share of the level for the test of steps as released. It only needs to find missing noise."""
_FEWEST: Final = 4
"""With this many weights, a step without noise is certain to be detected."""


def parts_of(
    seen: Seen, roles: Roles, rng: np.random.Generator, *, factor: float = 1.0, names: Sequence[str] = ()
) -> dict[str, Part]:
    """The parts of the conformance test, by name; `factor` scales all squares to test another noise size.

    `names` are the names of the parameters, for messages.
    """
    steps, places = seen.steps, len(seen.by_place)
    found: dict[str, Part] = {}
    if steps * places > 0:
        total = float(seen.by_step.sum())
        ratio = math.sqrt(total * factor / (steps * places))
        found["size"] = Part(
            laws.chi_squared(total * factor, steps * places),
            f"the noise is {ratio:.3g} times what was stated",
            LEAKS if ratio < 1 else EXTRA,
        )
        if steps > 1:
            found["steps"] = _steps(seen, places, total, factor)
        if places > 1:
            found["places"] = _places(seen.by_place, roles.parameter[~roles.shaped], steps, total, names)
    if (ties := near_ties(seen.fine)) is not None:
        found["ties"] = Part(ties.p_value, *tie_cause(ties))
    if seen.cells.sum() > 0:
        found["shape"] = _shape(seen.cells, math.sqrt(factor), rng)
    if (count := len(roles.index)) > 1:
        signs = np.unpackbits(seen.signs, axis=1, count=count, bitorder="little").astype(np.bool_)
        if len(signs) > 1:
            found["repeats"] = _repeats(signs, rng)
        found["copies"] = _copies(signs, roles.parameter, roles.index, rng, names)
    if seen.totals.size > 0:
        alone = np.setdiff1d(roles.whole, roles.parameter)
        found["totals"] = _totals(seen.totals, roles.whole, factor, names, alone)
    return found


def untested(seen: Seen, roles: Roles, parameters: int, level: float) -> dict[str, str]:
    """Faults that these parts may fail to detect, by topic; empty if there are none."""
    facts, steps = {}, seen.steps
    clear = needed(PARTS, level)
    if steps > 1 and len(seen.by_place) < _FEWEST:
        facts["steps"] = (
            f"noise that is missing in one step is looked for at {len(seen.by_place)} weights only"
        )
    watched = len(np.union1d(roles.parameter[~roles.shaped], roles.whole))
    if watched < parameters:
        facts["parameters"] = (
            f"the noise of {watched} of {parameters} is seen by itself; no weight shows that of the others"
        )
    pairs, common = parameters * (parameters - 1) // 2, _common_indices(roles)
    told = sum(
        len(common) * 2.0 ** (1 - min(steps, MOST_STEPS) * count) <= clear for count in common.values()
    )
    if told < pairs:
        facts["independence"] = (
            f"whether two parameters share their noise is tested for {told} of {pairs} pairs"
        )
    if steps > MOST_STEPS:
        facts["repeats"] = f"whether noise is used again is tested in the first {MOST_STEPS:,} steps"
    return facts


def _common_indices(roles: Roles) -> dict[tuple[int, int], int]:
    """The number of aligned indices that each pair of parameters has in common, if any."""
    found: dict[tuple[int, int], int] = {}
    for index in np.unique(roles.index[roles.index >= 0]):
        for one, other in combinations(roles.parameter[roles.index == index].tolist(), 2):
            found[one, other] = found.get((one, other), 0) + 1
    return found


def _steps(seen: Seen, places: int, total: float, factor: float) -> Part:
    """Test the share of each step in the squares and, for correlated noise, the squares as released.

    After whitening, a step without noise of its own still has noise from the steps before it.
    """
    by_step, steps = seen.by_step, seen.steps
    together = np.bincount(np.arange(steps) % len(by_step))
    tails = laws.beta(by_step / max(total, 1e-300), together * places / 2, (steps - together) * places / 2)
    shares = by_step * steps / (together * max(total, 1e-300))
    found = _uneven(laws.smallest(tails)[0], tails, shares)
    if len(seen.released) == 0:
        return found
    released = np.array([laws.chi_squared(factor * square, places) for square in seen.released])
    # The two tests share the level unevenly: divide each p-value by its share and take the smaller one
    # (Theorem 35). Missing noise is found in spite of the small share.
    raw = min(1.0, laws.smallest(released)[0] / _OF_RELEASED)
    if raw < found.p_value:
        return _uneven(raw, released, factor * seen.released / places)
    return found._replace(p_value=min(1.0, found.p_value / (1 - _OF_RELEASED)))


def _uneven(p_value: float, tails: Floats, shares: Floats) -> Part:
    """Describe the step with the most unusual share of the noise; `shares` are relative to expectation."""
    least = int(np.argmin(tails))
    if shares[least] >= _LITTLE:
        less = shares[least] < 1
        text = f"step {least + 1} has {'less' if less else 'more'} noise than it should"
        return Part(p_value, text, LEAKS if less else OPEN)
    silent = np.flatnonzero((shares < _LITTLE) & (tails < CERTAIN))
    which = f"step {least + 1} has"
    if len(silent) > 1:
        which = f"from step {silent[0] + 1} on, {len(silent)} of {len(shares)} steps have"
    return Part(p_value, f"{which} no noise: ε is unbounded", LEAKS, missing=True)


def _places(by_place: Floats, parameter: Integers, steps: int, total: float, names: Sequence[str]) -> Part:
    count = len(by_place)
    alone = laws.beta(by_place / max(total, 1e-300), steps / 2, (count - 1) * steps / 2)
    shares = np.bincount(parameter, weights=by_place) / max(total, 1e-300)
    held = np.bincount(parameter)
    several = np.flatnonzero((held > 1) & (held < count))
    tails = laws.beta(shares[several], held[several] * steps / 2, (count - held[several]) * steps / 2)
    least = int(np.argmin(alone))
    where, smallest = int(parameter[least]), float(alone[least])
    share = by_place[least] * count / max(total, 1e-300)
    if len(tails) and tails.min() < smallest:
        where, smallest = int(several[np.argmin(tails)]), float(tails.min())
        share = shares[where] * count / held[where]
    p_value, name = sidak(smallest, len(alone) + len(tails)), named(where, names)
    if share < _LITTLE:
        return Part(p_value, f"{name} has no noise: ε is unbounded", LEAKS, missing=True)
    if share < 1:
        return Part(p_value, f"{name} has less noise than the rest", LEAKS)
    return Part(p_value, f"{name} has more noise than the rest", OPEN)


def _shape(cells: Integers, scale: float, rng: np.random.Generator) -> Part:
    """Binomial tests from the outermost cell inwards, each given the counts farther out: independent.

    Edges are in units of the stated noise. The tested noise is 1 / `scale` times that.
    """
    beyond = 2 * special.ndtr(-np.array(EDGES) * scale)
    chances = np.append(beyond[:-1] - beyond[1:], beyond[-1]) / np.append(1 - beyond[1:], 1.0)
    left = np.cumsum(cells)[1:]
    tails = [
        laws.binomial(int(count), int(trials), float(chance), rng)
        for count, trials, chance in zip(cells[1:], left, chances, strict=True)
    ]
    return Part(laws.smallest(tails)[0], "the noise is not normally distributed")


def _repeats(signs: Hits, rng: np.random.Generator) -> Part:
    """Test for repeated noise between any two steps, and between all steps at the same distance.

    The signs of a step are a row of +1 and -1, so the product of these rows with their transpose holds the
    agreements of all pairs of steps. They are discrete, and many pairs share the largest value: `ties` of
    them. The smallest of that many randomised p-values is then drawn at once (`extreme_sum`).
    """
    steps, width = signs.shape
    values = np.where(signs, 1, -1).astype(np.float32)
    by_lag = np.zeros(steps)
    most, ties, where = -1.0, 0, (0, 1, 1.0)
    for first in range(0, steps, _CHUNK):
        agreed = np.asarray(values[first : first + _CHUNK] @ values.T)
        lags: Integers = np.arange(steps)[None] - (first + np.arange(len(agreed)))[:, None]
        later = lags > 0
        by_lag += np.bincount(lags[later], weights=agreed[later], minlength=steps)
        sizes = np.where(later, np.abs(agreed), -1)
        largest = float(sizes.max())
        if largest > most:
            most, ties = largest, 0
            row, column = divmod(int(np.argmax(sizes)), steps)
            where = (first + row, column, float(agreed[row, column]))
        ties += int(np.sum(sizes == most)) if largest == most else 0
    pairs = steps * (steps - 1) // 2
    single = sidak(laws.extreme_sum(most, width, ties, rng), pairs)
    tails = laws.signed_sums(by_lag[1:], np.arange(steps - 1, 0, -1) * width, rng)
    spread, lag = laws.smallest(tails)
    one, other, agreement = where
    text = f"the noise of step {other + 1} repeats that of step {one + 1}"
    if agreement < 0:
        text += " with the sign changed"
    if spread < single:
        text = f"the noise of steps {lag + 1} apart is correlated"
    return Part(sidak(min(single, spread), 2), text, LEAKS)


def _copies(
    signs: Hits, parameter: Integers, index: Integers, rng: np.random.Generator, names: Sequence[str]
) -> Part:
    """Test for shared noise: within a parameter, at the same index of two parameters, and across a step.

    Three tests: single pairs of witnesses; for two parameters, the sum of agreements at all common indices,
    which shows correlations that are too weak for a single pair; and whether all signs of a step are alike.
    If signs are fair, each sum is a walk of fair coins (Theorem 26 (f)).
    """
    steps = len(signs)
    values = np.where(signs, 1, -1).astype(np.float32)
    singles: list[tuple[float, int, int]] = []
    for where in np.unique(parameter):
        own = np.flatnonzero((parameter == where) & (index >= 0))
        agreed = values[:, own].T @ values[:, own]
        singles += [
            (float(agreed[i, j]), int(own[i]), int(own[j])) for i, j in combinations(range(len(own)), 2)
        ]
    between: dict[tuple[int, int], list[float]] = {}
    for place in np.unique(index[index >= 0]):
        own = np.flatnonzero(index == place)
        agreed = values[:, own].T @ values[:, own]
        for i, j in combinations(range(len(own)), 2):
            pair = (int(own[i]), int(own[j]))
            singles.append((float(agreed[i, j]), *pair))
            key = (int(parameter[pair[0]]), int(parameter[pair[1]]))
            between.setdefault(key, []).append(float(agreed[i, j]))
    found = []
    if singles:
        sums = np.array([agreed for agreed, *_ in singles])
        tails = laws.signed_sums(sums, np.full(len(sums), steps), rng)
        p_value, least = laws.smallest(tails)
        _, first, second = singles[least]
        found.append(Part(p_value, _shared(int(parameter[first]), int(parameter[second]), names)))
    if between:
        keys = list(between)
        sums = np.array([sum(between[key]) for key in keys])
        tails = laws.signed_sums(sums, np.array([steps * len(between[key]) for key in keys]), rng)
        p_value, least = laws.smallest(tails)
        found.append(Part(p_value, _shared(*keys[least], names)))
    found.append(_common(signs, rng))
    # A separate stream leaves the random numbers of later parts unchanged.
    found.append(_predicted(signs, rng.spawn(1)[0]))
    smallest = min(part.p_value for part in found)
    telling = min(found, key=lambda part: max(part.p_value, CERTAIN))
    return Part(sidak(smallest, len(found)), telling.cause, LEAKS)


def _totals(
    totals: Floats, parameter: Integers, factor: float, names: Sequence[str], alone: Integers
) -> Part:
    """Test for noise that is used twice, in any order: totals are too large, too small, or too similar.

    Parameters in `alone` have no witnesses: if their totals vanish, their noise is missing.
    """
    steps, count = totals.shape
    squares = np.sum(totals**2, axis=0)
    tails = np.array([laws.chi_squared(factor * float(square), steps) for square in squares])
    p_value, least = laws.smallest(tails)
    found = [Part(p_value, f"noise is used twice in {named(int(parameter[least]), names)}", LEAKS)]
    if count > 1:
        # Noise that is smoothed along an axis is twice as large in total, in every parameter alike.
        text = "noise is smoothed, or used twice, in several parameters"
        found.append(Part(laws.chi_squared(factor * float(squares.sum()), steps * count), text, LEAKS))
    if steps > 1:
        # Columns of length 1, with (1, ..., 1) as the last: products of two are cosines of their angles.
        unit = np.column_stack([totals / np.sqrt(np.maximum(squares, 1e-300)), np.full(steps, steps**-0.5)])
        first, second = np.triu_indices(count + 1, 1)
        alike = np.minimum((unit.T @ unit)[first, second] ** 2, 1.0)
        angles = special.betaincc(0.5, (steps - 1) / 2, alike)
        p_value, least = laws.smallest(angles)
        one, other = int(parameter[first[least]]), int(second[least])
        text = f"noise is the same in every step, in {named(one, names)}"
        if other < count:
            text = _shared(one, int(parameter[other]), names)
        found.append(Part(p_value, text, LEAKS))
    telling = min(found, key=lambda part: part.p_value)
    missing = np.flatnonzero((squares < _LITTLE * steps) & np.isin(parameter, alone))
    if len(missing):
        silent = f"{named(int(parameter[missing[0]]), names)} has no noise: ε is unbounded"
        telling = found[0]._replace(cause=silent)
    return Part(sidak(telling.p_value, len(found)), telling.cause, LEAKS, missing=len(missing) > 0)


def _common(signs: Hits, rng: np.random.Generator) -> Part:
    """Test the number of positive signs in each step: the sum of squares of their normal scores."""
    scores = laws.normal_scores(stats.binom(signs.shape[1], 0.5), signs.sum(axis=1), rng)
    return Part(
        laws.chi_squared(float(scores @ scores), len(scores)), "noise is common to all parameters", LEAKS
    )


def _predicted(signs: Hits, rng: np.random.Generator) -> Part:
    """Test whether signs can be predicted from other witnesses: noise with fewer dimensions than weights.

    If noise lies in a fixed subspace of k dimensions, any two witnesses are correlated by about k^-1/2. That
    is too little for one pair, but all pairs together show it. Witness i of step t is predicted by a vote of
    the witnesses j < i of the same step, each weighted by its agreement with i in earlier steps. Fair signs
    are independent of their predictors, so the number of right predictions is binomial with probability 1/2
    (Theorem 26 (f)). For T steps and P witnesses it exceeds its mean by about TP / 8k deviations.
    """
    steps, width = signs.shape
    values = np.where(signs, 1, -1).astype(np.float32)
    weights = np.zeros((width, width), dtype=np.float32)  # the agreements of i with j < i
    right = 0
    # Several steps are predicted by one matrix product. Agreements among them count for later steps only.
    for start in range(0, steps, _PREDICTED):
        some = values[start : start + _PREDICTED]
        right += int(np.sum((some @ weights.T > 0) == (some > 0)))
        weights += np.tril(some.T @ some, -1)
    p_value = laws.binomial(right, steps * width, 0.5, rng)
    return Part(p_value, "the noise of weights can be predicted from that of others", LEAKS)


def _shared(first: int, second: int, names: Sequence[str]) -> str:
    if first == second:
        return f"noise is used twice in {named(first, names)}"
    return f"{named(first, names)} and {named(second, names)} share noise"
