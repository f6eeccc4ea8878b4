"""From scores and bits to a bound in one call."""

import math
import warnings
from dataclasses import replace
from hashlib import sha256
from typing import Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, coins, seeds
from canaria._core.arrays import Bits, Floats
from canaria._core.errors import AuditWarning, InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound, delta_of, lower_bound
from canaria.bounds.parts import Histogram
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.claims.families import Family, parse_family
from canaria.evidence import Counts, Evidence
from canaria.rules import Matched, Ranked, Rule, Soft, Threshold, written
from canaria.rules.door import guess_once

UPSIDE_DOWN: Final = (
    "included elements have lower scores than excluded ones, beyond chance; a higher score must mean "
    "'more likely included'. If they are losses, say so (--higher-means excluded, or -losses in Python). "
    "Else negate the scores in your next run; changing the sign after seeing this bound would invalidate it"
)
_TIES: Final = 0x74696573
_CLEARLY: Final = 5.0
"""Standard errors beyond which scores count as upside down."""
_FAR_BELOW: Final = 2.0
"""A note is added if the bound of the default rule is this many times as large."""


def audit_scores(
    scores: npt.ArrayLike,
    bits: npt.ArrayLike,
    delta: float = 0.0,
    confidence: float = 0.95,
    rule: Rule | None = None,
    rng: Seed = None,
    *,
    adjacency: str = "add-remove",
    family: Family | str | None = None,
) -> Bound:
    """The lower bound on epsilon that membership scores prove.

    The rule commits to its guesses from the scores alone. The elements are put in random order first, so ties
    are broken at random and the list may be sorted by the bits. If all scores are equal, no guess is taken.

    With a family the bound is larger, but it applies to mechanisms of that family alone: `bound.claim` is its
    weakest refuted claim, and `bound.epsilon` is the epsilon of that claim.

    Args:
        scores: One number per canary, higher meaning "more likely included".
        bits: Which canaries were included, by independent fair coins: booleans, 0/1, -1/+1, or words such as
            yes/no or in/out.
        delta: The delta at which epsilon is bounded.
        confidence: The confidence of the bound, strictly between 0 and 1.
        rule: How scores become guesses; by default `Ranked()`, or `Matched(family, confidence)`.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.
        adjacency: "add-remove" if an excluded canary contributes nothing, "replace" if another record takes
            its place, or "unspecified".
        family: The family of claims to test, or its name, such as `families.Gaussian()` or "gaussian"; None
            for epsilon at delta, for every mechanism.

    Raises:
        InputError: If the bits are practically impossible for fair coins, or if both are pandas Series with
            different row labels.

    Warns:
        CoinWarning: If the bits are unlikely for fair coins.
        AuditWarning: If the bound is 0 and the scores are upside down.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> bits = rng.integers(0, 2, 1000)
        >>> scores = rng.normal(2.0 * bits)
        >>> audit_scores(scores, bits, rng=1).epsilon > 2.5
        True
        >>> audit_scores(scores, bits, 1e-5, family="gaussian", rng=1).epsilon > 4.5
        True
    """
    checks.same_index("scores", scores, "bits", bits)
    return bound_of_scores(
        scores, coins.checked_bits(bits), delta, confidence, rule, rng, adjacency=adjacency, family=family
    )


def result_of_scores(
    scores: npt.ArrayLike,
    bits: npt.ArrayLike,
    claim: Claim | None = None,
    *,
    delta: float | None = None,
    confidence: float = 0.95,
    rule: Rule | None = None,
    rng: Seed = None,
    adjacency: str = "add-remove",
    family: Family | str | None = None,
    name: str = "scores",
) -> Result:
    """The result of membership scores: the bound of `audit_scores`, and a histogram of the scores.

    Args:
        scores: One number per canary, higher meaning "more likely included".
        bits: Which canaries were included, by independent fair coins.
        claim: The promise; the bound is at its delta. With a family, a claim of it.
        delta: The delta of the bound, if there is no claim or the claim is a curve; 0 by default.
        confidence: The confidence of the bound, strictly between 0 and 1.
        rule: How scores become guesses, as in `audit_scores`.
        rng: A seed for the order in which a rule sees the scores.
        adjacency: What the audit was about: "add-remove" or "replace".
        family: The family of claims to test, as in `audit_scores`.
        name: What was audited.

    Example:
        >>> import numpy as np
        >>> from canaria.claims import ApproximateDP
        >>> from canaria.game import result_of_scores
        >>> bits = np.random.default_rng(0).integers(0, 2, 1000)
        >>> scores = np.random.default_rng(1).normal(2.0 * bits)
        >>> result_of_scores(scores, bits, ApproximateDP(1.0, delta=0), rng=0).refuted
        True
    """
    values, included = checks.vector("scores", scores, infinite=True), checks.two_valued("bits", bits)
    bound = audit_scores(
        scores, bits, delta_of(claim, delta), confidence, rule, rng=rng, adjacency=adjacency, family=family
    )
    digest = sha256(values.tobytes() + included.tobytes()).hexdigest()
    return replace(
        bound.result(claim, name=name),
        histogram=Histogram.of(values, included),
        facts={
            "scores": f"{len(values)}, sha256 of the numbers {digest}",
            **_advice(bound, values, included, rule),
        },
        seed=rng if isinstance(rng, int) else None,
    )


def _advice(bound: Bound, scores: Floats, bits: npt.ArrayLike, rule: Rule | None) -> dict[str, str]:
    """The rule for the next audit, if the default one would have had a far larger bound."""
    if rule is None or bound.family is not None or not np.isfinite(scores).all():
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranked = audit_scores(scores, bits, bound.delta, bound.confidence, rng=0)
    if ranked.epsilon <= _FAR_BELOW * bound.epsilon:
        return {}
    return {
        "next time": f"the default rule would show {ranked.epsilon_text} of such scores; a rule must be "
        "chosen before the scores are seen, so for these it is too late"
    }


def bound_of_scores(
    scores: npt.ArrayLike,
    hidden: Bits,
    delta: float,
    confidence: float,
    rule: Rule | None,
    rng: Seed,
    *,
    adjacency: str,
    family: Family | str | None = None,
) -> Bound:
    """Like `audit_scores`, for coins (-1 or +1) that canaria tossed itself; their fairness is not checked."""
    tested = parse_family(family) if isinstance(family, str) else family
    if rule is None:
        rule = Ranked() if tested is None else Matched(tested, confidence)
    if not callable(rule) or isinstance(rule, type):
        raise InputError(f"rule must turn scores into guesses, such as Ranked(), got {shown(rule)}")
    infinite = isinstance(rule, Soft | Threshold)
    values = checks.vector("scores", scores, infinite=infinite)
    checks.same_length("scores", len(values), "bits", len(hidden))
    # If all scores are equal, a rule could only guess at random: no guess is taken, and nothing refuted.
    evidence: Evidence = Counts(0, 0, len(hidden))
    if values.max() > values.min():
        _, evidence = guess_once(rule, values, hidden, seeds.generator(rng, _TIES))
    bound = lower_bound(evidence, delta, confidence, adjacency=adjacency, rule=written(rule), family=tested)
    if bound.epsilon == 0 and are_upside_down(values, hidden):
        warnings.warn(UPSIDE_DOWN, AuditWarning, stacklevel=3)
    return bound


def are_upside_down(scores: Floats, hidden: Bits) -> bool:
    """Whether included elements have lower scores, by five standard errors (Mann and Whitney 1947)."""
    # Ranks, with equal scores sharing their mean rank. Under fair coins the sum of the ranks of the included
    # ones is about normal around its mean.
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    included = hidden > 0
    error = ranks.std() * math.sqrt(included.mean() * (1 - included.mean()) * len(ranks))
    return bool(((ranks - ranks.mean()) @ included) < -_CLEARLY * error)
