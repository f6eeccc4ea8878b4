"""Privacy claims as tests: an assertion that fails when an audit refutes the claim.

For a mechanism that keeps its claim, a test fails with probability at most 1 - confidence, over the hidden
bits and the noise; with a fixed seed the outcome is the same each time. Passing is not a proof of privacy: it
says that this audit, with this score, did not refute the claim. A test that could not fail at all is an
error.

The pytest plugin (`canaria.testing.pytest_plugin`) splits one false-alarm rate over a whole suite.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from canaria._core import checks
from canaria._core.errors import AuditWarning, InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim, require_same_adjacency
from canaria.claims.base import for_neighbours
from canaria.game import Score, check_release
from canaria.rules import AdaptiveRule, Rule
from canaria.testing.examine import examine, examine_training
from canaria.testing.verdict import Verdict


def assert_private(
    mechanism: Any,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    claim: Claim | None = None,
    score: Score | None = None,
    rule: Rule | AdaptiveRule | None = None,
    n: int | None = None,
    rounds: Sequence[Any] | None = None,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    adjacency: str | None = None,
    confidence: float = 0.999,
    rng: Seed = 0,
) -> Bound:
    """Fail if one game against the mechanism refutes the claim that it is (epsilon, delta)-DP, or another.

    The game tests add-remove adjacency for a function that includes elements or not, and replace-one with
    `pairs`. A mechanism that is an object declares its adjacency, and the claim is about that one.

    Args:
        mechanism: A mechanism or a function, as in `canaria.play`. An audit that was already made may be
            given instead: a `Bound`, the result of `combine`, evidence, or an object with
            `bound(delta, confidence)`, such as a `Transcript` of `many_runs`. Its bound is computed again
            at this confidence.
        epsilon: The claimed epsilon.
        delta: The claimed delta; 0 for pure DP.
        claim: What is claimed instead of epsilon and delta, such as `GaussianDP(1.0)`: a curve is refuted by
            less evidence. The rule is then `Matched` by default.
        score: As in `canaria.play`.
        rule: As in `canaria.play`.
        n: As in `canaria.play`; 1,000 if neither `n` nor `pairs` is given.
        rounds: As in `canaria.play`.
        pairs: As in `canaria.play`.
        adjacency: The adjacency of the claim, which must be that of the game: with `pairs`, and for audits of
            replace-one neighbours, "replace" must be stated, here or in `claim`.
        confidence: A correct mechanism fails with probability at most 1 - confidence.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; the default is the fixed seed 0.

    Raises:
        AssertionError: If the claim is refuted; the message is the sentence of the bound.
        InputError: If no outcome could have refuted the claim.

    Warns:
        AuditWarning: If the test passed but was weaker than it looks.

    Example:
        >>> from canaria import assert_private
        >>> from canaria.mechanisms import RandomizedResponse
        >>> assert_private(RandomizedResponse(1.0), epsilon=1.0, delta=0).epsilon < 1
        True
    """
    __tracebackhide__ = True
    game = {"score": score, "rule": rule, "n": n, "rounds": rounds, "pairs": pairs}
    promised = promise(epsilon, delta, claim, adjacency)
    return _asserted(examine(mechanism, promised, game, confidence, rng=rng))


def assert_private_training(
    audit: object,
    epsilon: float | None = None,
    delta: float | None = None,
    *,
    claim: Claim | None = None,
    rule: Rule | AdaptiveRule | None = None,
    adaptive: bool = False,
    conformance: bool = True,
    adjacency: str | None = None,
    confidence: float = 0.999,
) -> Bound:
    """Fail if an audited training run refutes the claim, or is not what it was stated to be.

    The bound and the conformance test each get half of the false-alarm probability 1 - confidence. The
    conformance test finds faults long before the claim is refuted. It assumes the Gaussian mechanism and
    Poisson sampling. For dense canaries its p-value is approximate.

    Args:
        audit: An attached audit after training, or its `Recording` (with JAX:
            `audit.recording(noise_state)`).
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        claim: What is claimed instead, such as `DpSgd(noise_multiplier=1.0, sample_rate=0.01, steps=1000)`.
        rule: How scores become guesses, as in `Recording.bound`.
        adaptive: Whether bits are revealed during guessing, as in `Recording.bound`.
        conformance: Whether to test conformance; False gives the whole false-alarm probability to the bound.
        adjacency: The adjacency of the claim; add-remove if it is not stated.
        confidence: Correct training fails with probability at most 1 - confidence.

    Raises:
        AssertionError: If the claim is refuted or training does not conform.
        InputError: If no outcome could have made the test fail.

    Warns:
        AuditWarning: If the test passed but did not test everything.

    Example:
        ```python
        def test_training():
            audit = train_with_canaries()  # your training, with an attached audit
            assert_private_training(audit, epsilon=2.0, delta=1e-5)
        ```
    """
    __tracebackhide__ = True
    how = {"rule": rule, "adaptive": adaptive}
    promised = promise(epsilon, delta, claim, adjacency)
    return _asserted(examine_training(audit, promised, how, confidence, conformance=conformance))


def assert_private_release(
    fit: Callable[[Any, np.random.Generator], Any],
    data: Any,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    confidence: float = 0.999,
    rng: Seed = 0,
    **how: Any,
) -> Result:
    """Fail if a check of what a function releases refutes its claim.

    Args:
        fit: As in `canaria.check_release`.
        data: As in `canaria.check_release`.
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        confidence: A correct release fails with probability at most 1 - confidence.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; the default is the fixed seed 0.
        how: Further arguments of `canaria.check_release`, such as `claim`.

    Raises:
        AssertionError: If the claim is refuted; the message says what told neighbours apart.

    Example:
        >>> import numpy as np
        >>> from canaria.testing import assert_private_release
        >>> def count(rows, rng):
        ...     return len(rows) + rng.laplace(scale=2)
        >>> assert_private_release(count, np.arange(50.0), epsilon=1.0).answer
        'not refuted'
    """
    __tracebackhide__ = True
    found = check_release(fit, data, epsilon=epsilon, delta=delta, confidence=confidence, rng=rng, **how)
    if found.alarming:
        raise AssertionError(str(found))
    return found


def promise(epsilon: float | None, delta: float | None, claim: Claim | None, adjacency: str | None) -> Claim:
    """The claim of an assertion: epsilon and delta, or a claim."""
    if claim is None:
        if epsilon is None or delta is None:
            raise InputError("an assertion needs epsilon and delta, or claim, such as GaussianDP(1.0)")
        return ApproximateDP(epsilon, delta, adjacency or "unspecified")
    if epsilon is not None or delta is not None or not isinstance(claim, Claim):
        raise InputError(f"claim must be a claim, without epsilon and delta beside it, got {shown(claim)}")
    if adjacency is None:
        return claim
    stated = for_neighbours(claim, checks.adjacency(adjacency))
    require_same_adjacency(adjacency, stated.adjacency)
    return stated


def _asserted(verdict: Verdict) -> Bound:
    __tracebackhide__ = True
    if not verdict.passed:
        raise AssertionError(str(verdict))
    for note in verdict.notes:
        warnings.warn(f"the test passed, but {note}", AuditWarning, stacklevel=3)
    return verdict.bound
