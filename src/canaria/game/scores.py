"""From scores and bits to a bound in one call."""

from typing import Final

import numpy.typing as npt

from canaria._core import checks, coins, seeds
from canaria._core.arrays import Bits
from canaria._core.seeds import Seed
from canaria.evidence import Counts, Evidence
from canaria.evidence.bound import Bound, lower_bound
from canaria.rules import Ranked, Rule, Soft, Threshold, written
from canaria.rules.door import guess_once

_TIES: Final = 0x74696573


def audit_scores(
    scores: npt.ArrayLike,
    bits: npt.ArrayLike,
    delta: float = 0.0,
    confidence: float = 0.95,
    rule: Rule = Ranked(),  # noqa: B008 (a frozen dataclass without fields)
    rng: Seed = None,
    *,
    adjacency: str = "add-remove",
) -> Bound:
    """The lower bound on epsilon that membership scores prove.

    `scores` holds one number per canary, higher meaning "included more likely"; `bits` says which were
    included, by independent fair coins (booleans, 0/1 or -1/+1). The rule commits to its guesses from
    the scores alone; `rng` puts them in random order first, so that ties are broken at random and a list may
    be sorted by the bits. `adjacency` says what the audit was about: "add-remove" when an
    excluded canary contributes nothing, "replace" when another record takes its place. Scores that are
    all equal say nothing: no guess is taken.

    >>> import numpy as np
    import numpy.typing as npt
    >>> rng = np.random.default_rng(0)
    >>> bits = rng.integers(0, 2, 1000)
    >>> scores = rng.normal(2.0 * bits)
    >>> audit_scores(scores, bits, rng=1).epsilon > 2.5
    True
    """
    return bound_of_scores(
        scores, coins.checked_bits(bits), delta, confidence, rule, rng, adjacency=adjacency
    )


def bound_of_scores(
    scores: npt.ArrayLike,
    hidden: Bits,
    delta: float,
    confidence: float,
    rule: Rule,
    rng: Seed,
    *,
    adjacency: str,
) -> Bound:
    """The same for coins (-1 or +1) that canaria tossed itself: they are fair, however they fell."""
    if not callable(rule):
        raise checks.InputError(f"rule must turn scores into guesses, such as Ranked(), got {rule!r}")
    infinite = isinstance(rule, Soft | Threshold)
    values = checks.vector("scores", scores, infinite=infinite)
    checks.same_length("scores", len(values), "bits", len(hidden))
    evidence: Evidence = Counts(0, 0, len(hidden))
    if values.max() > values.min():
        _, evidence = guess_once(rule, values, hidden, seeds.generator(rng, _TIES))
    return lower_bound(evidence, delta, confidence, adjacency=adjacency, rule=written(rule))
