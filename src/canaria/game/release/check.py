"""Check what any function releases, without a score and without an expert.

The function runs on pairs of neighbouring data sets. For each run a fair coin chooses the data set; the coin
is guessed from the output, by what earlier runs of the pair showed, and the guess is staked before the coin
is revealed. One wealth is staked on all pairs, so trying many of them costs nothing (Theorem 37).
"""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed, generator, global_state_kept
from canaria.bounds import Result
from canaria.claims import ApproximateDP, Claim, require_same_adjacency
from canaria.claims.base import for_neighbours
from canaria.game.release.learning import Sign
from canaria.game.release.neighbours import DataSet, Pair, copied, neighbours_of
from canaria.game.release.runs import SECONDS, Runner
from canaria.game.release.trials import Check, Trial

RUNS: Final = 300
"""The most runs of the function, by default."""
_LEAST: Final = 50
"""With fewer runs, no pair gets enough of them."""
_ALWAYS: Final = 20
"""After this many right guesses in a row, a bound below the claim says more about the number of runs."""
_PURPOSE: Final = 0x72656C
_SEEDS: Final = 0x736565
_OWN: Final = "your own"
"""The kind of the pairs that the user gives."""


def check_release(
    fit: Callable[[Any, np.random.Generator], Any],
    data: DataSet,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    claim: Claim | None = None,
    adjacency: str = "add-remove",
    unit: Hashable = None,
    neighbours: Sequence[tuple[Any, Any]] = (),
    timing: bool = False,
    runs: int = RUNS,
    seconds: float | None = None,
    confidence: float = 0.99,
    rng: Seed = None,
) -> Result:
    """Look for a release that tells neighbouring data sets apart better than epsilon allows.

    Everything that `fit` returns counts as released: numbers, tables, texts, objects with all that they
    store, errors and warnings. Neighbours are made from the data: usual, extreme and far rows, missing values
    and new categories, each added to all rows, to five rows and to none.

    Args:
        fit: Any function `fit(data, rng)`: a query, the fit of a model, a synthesizer.
        data: A data frame, an array, or a list of rows.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        claim: In place of both, another claim, such as `ZeroConcentratedDP(0.5)`. Of a curve, one point is
            tested.
        adjacency: The neighbours that the claim is about: "add-remove" or "replace".
        unit: The column that names the user, client or group, if all rows of one are protected together.
        neighbours: Pairs of data sets of your own, tried first.
        timing: Whether others see how long a run takes, so that the time is released, too.
        runs: The most runs of `fit`, at least 50. Plain faults take about a hundred.
        seconds: The time after which no further run begins; None for no limit.
        confidence: A release that keeps its claim is refuted with probability at most 1 - confidence.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Returns:
        The bound with the claim, what told the data sets apart, and what was not tried.

    Raises:
        InputError: If an argument is not usable, or if `fit` raises an error on the data themselves.

    Example:
        >>> import numpy as np
        >>> from canaria import check_release
        >>> def average(ages, rng):  # the noise is for ages up to 100, but no age is clipped
        ...     return np.mean(ages) + rng.laplace(scale=100 / len(ages))
        >>> check_release(average, np.arange(20.0, 60.0), epsilon=1.0, rng=0).answer
        'refuted'

    """
    stated = _stated(claim, epsilon, delta, adjacency)
    if not callable(fit):
        raise InputError(f"fit must be a function fit(data, rng), got {shown(fit)}")
    seed = rng if isinstance(rng, int) else int(generator(rng, _PURPOSE).integers(2**63))
    made, tested = neighbours_of(data, adjacency=adjacency, unit=unit, rng=seed)
    own = _own_pairs(neighbours)
    if not own and not made:
        raise InputError(f"no neighbours for {adjacency=} could be made of these data: give neighbours=")
    left = math.inf if seconds is None else checks.nonnegative("seconds", seconds)
    trials = Check(
        run=Runner(fit, timed=checks.truth("timing", timing)),
        claim=stated,
        confidence=checks.confidence(confidence),
        most=checks.integer("runs", runs, _LEAST),
        until=time.perf_counter() + left,
        coins=generator(seed, _PURPOSE),
        seeds=generator(seed, _SEEDS),
    )
    with global_state_kept():
        trials.look([*own, *made], data)
        trials.play()
    how = "" if adjacency == "add-remove" else f", adjacency={adjacency!r}"
    how += "" if unit is None else f", unit={unit!r}"
    return replace(
        trials.bound.result(stated, name=_name(fit)),
        facts=_facts(trials, fit, f"{how}, rng={seed}"),
        remarks=tuple(_remarks(trials)),
        tested=_tested(trials, tested),
        seed=seed,
    )


def _stated(claim: Claim | None, epsilon: float | None, delta: float, adjacency: str) -> Claim:
    """The claim that is checked, with the adjacency of the neighbours."""
    if checks.adjacency(adjacency) == "unspecified":
        raise InputError('adjacency must be "add-remove" or "replace": it says which neighbours are made')
    if (claim is None) == (epsilon is None):
        raise InputError("give one claim: epsilon (and delta), or claim")
    if claim is None:
        assert epsilon is not None
        return ApproximateDP(epsilon, delta, adjacency)
    require_same_adjacency(adjacency, claim.adjacency)
    return for_neighbours(claim, adjacency)


def _own_pairs(neighbours: Sequence[tuple[Any, Any]]) -> list[Pair]:
    """The pairs that the user gives."""
    if not isinstance(neighbours, list | tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in neighbours
    ):
        raise InputError("neighbours must be a list of pairs of data sets: [(one, other)]")
    return [
        Pair(
            words=f"pair {number} of your own",
            kind=_OWN,
            first=partial(copied, one),
            second=partial(copied, other),
            base=f"{number}",
        )
        for number, (one, other) in enumerate(neighbours, start=1)
    ]


def _tested(trials: Check, kinds: dict[str, str]) -> dict[str, str]:
    """For each kind of neighbours, why none was tested; empty if one was."""
    done = {one.pair.kind for one in trials.tried}
    missed = (
        "no pair of these led to a release" if not trials.skipped else "too few runs, or all were refused"
    )
    found = {kind: reason or ("" if kind in done else missed) for kind, reason in kinds.items()}
    if trials.run.timed and trials.tried:
        found["running time"] = ""
    if trials.sizes:
        found["small data"] = "the number of rows is released"
    if trials.skipped:
        found["other neighbours"] = f"{trials.skipped} more pairs need more runs"
    return found


def _name(fit: Callable[..., Any]) -> str:
    return str(getattr(fit, "__name__", type(fit).__name__))


def _facts(trials: Check, fit: Callable[..., Any], how: str) -> dict[str, str]:
    """What told which data sets apart, and how to see it once more."""
    facts = {"runs": f"{trials.runs} of at most {trials.most}, with {len(trials.tried)} pairs of neighbours"}
    best = trials.best
    if best is None or best.learner.sign is None:
        return facts
    sign = best.learner.sign
    script = _script(fit, best.pair, sign, how)
    return {**facts, "neighbours": best.pair.words, "told by": _told(best, sign), "once more": script}


def _told(best: Trial, sign: Sign) -> str:
    """What tells the data sets of a pair apart, and in how many runs."""
    second, of_second, first, of_first = best.learner.seen()
    return f"{sign.words}: in {second} of {of_second} runs with it, in {first} of {of_first} without"


def _remarks(trials: Check) -> list[str]:
    """What a reader must know before the verdict."""
    found, best = [], trials.best
    if best is not None and best.learner.sign is not None:
        story = f"{best.pair.words}; {_told(best, best.learner.sign)}"
        if trials.refuted:
            found.append(story)
        elif best.in_a_row >= _ALWAYS:
            found.append(f"{story}; every guess was right for {best.in_a_row} runs: more runs show more")
    found += [
        f"{name}, so no release was tested there: {_listed(words)}; an error that others see reveals them"
        for name, words in trials.refused.items()
    ]
    if trials.sizes:
        names = _listed(sorted(name.lstrip(".") for name in trials.sizes))
        found.append(
            f"{names}: the exact number of rows, which was taken as public; where a claim is about added and "
            "removed rows, it must not be released"
        )
    if trials.tried and trials.unread:
        found.append(f"nothing in the output could be read: {trials.unread}")
    return found


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - 2} more" if len(words) > 2 else ""
    return "; ".join(words[:2]) + more


def _importable(module: str, name: str) -> bool:
    return name.isidentifier() and module != "__main__" and all(map(str.isidentifier, module.split(".")))


def _script(fit: Callable[..., Any], pair: Pair, sign: Sign, how: str) -> str:
    """A script that prints, for ten seeds, the number that tells two data sets apart."""
    if pair.kind == _OWN:
        made = [f"first, second = neighbours[{int(pair.base) - 1}]"]
    else:
        made = [
            f"pairs, _ = neighbours_of(data{how})",
            f"pair = next(one for one in pairs if one.words == {pair.words!r})",
            "first, second = pair.first(), pair.second()",
        ]
    module, name = getattr(fit, "__module__", ""), getattr(fit, "__qualname__", "")
    made_by = "Runner(fit, timed=True)" if sign.name == SECONDS else "Runner(fit)"
    lines = [
        "import numpy as np",
        "from canaria.game.release import Runner, neighbours_of",
        f"from {module} import {name} as fit" if _importable(module, name) else "# fit is your function",
        *made,
        "for seed in np.random.SeedSequence(0).spawn(10):",
        f"    print([{made_by}(rows, seed).get({sign.name!r}) for rows in (first, second)])",
    ]
    return "\n".join(lines)
