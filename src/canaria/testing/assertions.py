"""Privacy claims as tests: an assertion that fails when an audit refutes the claim.

For a mechanism that keeps its claim, a test fails with probability at most 1 - confidence, over the hidden
bits and the noise; with a fixed seed the outcome is the same each time. Passing is not a proof of privacy: it
says that this audit, with this score, did not refute the claim. A test that could not fail at all is an
error.

The pytest plugin (`canaria.testing.pytest_plugin`) splits one false-alarm rate over a whole suite.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final

import numpy as np

from canaria._core import checks
from canaria._core.errors import AuditWarning, InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound, lower_bound
from canaria.bounds.combine import bound_of, confidence_at, made_bound
from canaria.bounds.conformance import LEAST_LEVEL, Conformance
from canaria.bounds.reach import reach, remedy
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim, require_same_adjacency
from canaria.claims.base import FLIPS, for_neighbours
from canaria.claims.families import Family, family_of
from canaria.evidence.base import Inversion
from canaria.game.play import Score, Transcript, play
from canaria.game.scores import UPSIDE_DOWN, are_upside_down
from canaria.mechanisms import Function
from canaria.rules import AdaptiveRule, Bet, Matched, Rule, Soft, SurestFirst

SHOWN_DELTA: Final = 1e-5
"""The delta at which the epsilon of a curve is shown."""
ELEMENTS: Final = 1000
"""How many elements a game has if nobody says."""


@dataclass(frozen=True)
class Verdict:
    """A claim compared with an audit, and whether the test passed.

    For correct code `passed` is False with probability at most 1 - confidence of the bound, plus the level of
    the conformance test.

    Attributes:
        bound: The bound of the audit.
        claim: The claim.
        conformance: The outcome of the conformance test; None if there was none.
        contradictions: What training did otherwise than was stated, for certain.
        seed: The seed of the audit, if it is known.
        notes: What the reader should know about the test.

    """

    bound: Bound
    claim: Claim
    _: KW_ONLY
    conformance: Conformance | None = None
    contradictions: tuple[str, ...] = ()
    seed: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def promise(self) -> str:
        """The claim in words."""
        if isinstance(self.claim, ApproximateDP):
            return f"epsilon = {self.claim.epsilon:.6g} at delta {self.claim.delta:g}"
        return f"of {self.claim}"

    @property
    def refuted(self) -> bool:
        """Whether the bound lies above the claim."""
        return self.bound.refutes(self.claim)

    @property
    def conforms(self) -> bool:
        """Whether training conforms to what was stated, as far as that was tested."""
        return self.conformance is None or self.conformance.conforms or self.conformance.is_safe

    @property
    def passed(self) -> bool:
        """Whether the claim is not refuted, and training conforms and does not contradict itself."""
        return not self.refuted and self.conforms and not self.contradictions

    def result(self, name: str, command: str | None = None) -> Result:
        """The result, for `canaria verify` and `canaria report`."""
        facts = {"notes": "; ".join(self.notes)} if self.notes else {}
        return Result(
            self.bound,
            self.claim,
            name=name,
            conformance=self.conformance,
            contradictions=self.contradictions,
            facts=facts,
            seed=self.seed,
            command=command,
        )

    def __str__(self) -> str:
        """The sentence of the bound, and the outcome of the conformance test if there was one."""
        answer = "REFUTED" if self.refuted else "not refuted"
        lines = [f"the claim {self.promise} is {answer}. {self.bound.explanation}"]
        if (found := self.conformance) is not None:
            if not (found.conforms and self.contradictions):
                lines.append(f"{found.answer}, where less than {found.level:.2g} is a failure")
            lines.append(
                f"noise multiplier {found.noise:.3g} (stated {found.stated_noise:.3g}), canary weight "
                f"{found.weight:.2f} (expected 1)"
            )
        lines = [*(f"training was NOT what was stated: {one}" for one in self.contradictions), *lines]
        return "\n".join([*lines, *self.notes])


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
            `bound(delta, confidence)`, such as the `Transcript` of `classic`. Its bound is computed again at
            this confidence.
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

    Returns:
        The bound.

    Raises:
        AssertionError: If the claim is refuted; the message is the sentence of the bound.
        InputError: If an argument is not usable, or if no outcome could have refuted the claim.

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
        claim: What is claimed instead, such as `DpSgd(1.0, sample_rate=0.01, steps=1000)`.
        rule: How scores become guesses, as in `Recording.bound`.
        adaptive: Whether bits are revealed during guessing, as in `Recording.bound`.
        conformance: Whether to test conformance; False gives the whole false-alarm probability to the bound.
        adjacency: The adjacency of the claim; add-remove if it is not stated.
        confidence: Correct training fails with probability at most 1 - confidence.

    Returns:
        The bound.

    Raises:
        AssertionError: If the claim is refuted or training does not conform.
        InputError: If an argument is not usable, or if no outcome could have made the test fail.

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


def examine(
    mechanism: Any,
    claim: Claim,
    game: Mapping[str, Any],
    confidence: float,
    *,
    rng: Seed = None,
) -> Verdict:
    """Play a game against a mechanism, or take an audit that was made, and compare it with the claim."""
    __tracebackhide__ = True
    checks.confidence(confidence)
    if is_audit(mechanism):
        given = [name for name, value in game.items() if value is not None]
        if given:
            raise InputError(f"{given[0]} goes with a mechanism; {shown(mechanism)} is an audit already made")
        audit, seed = mechanism, None
    else:
        claim = for_neighbours(claim, _declared_adjacency(mechanism))
        _require_unbelieving(mechanism, game, _epsilon(claim))
        if game.get("rule") is None and game.get("rounds") is None and (own := _family(claim)) is not None:
            game = {**game, "rule": Matched(own, confidence)}
        size = ELEMENTS if game.get("n") is None and game.get("pairs") is None else game.get("n")
        audit, seed = play(mechanism, **{**game, "n": size}, rng=rng), rng if isinstance(rng, int) else None
    bound, claim = _held_against(audit, claim, confidence)
    hopeless = _hopeless(bound, claim)
    if hopeless:
        raise InputError(f"this test cannot fail: {hopeless}")
    silent = _says_nothing(audit, game.get("score"))
    return Verdict(bound, claim, seed=seed, notes=silent or _idle(bound, claim))


def examine_training(
    audit: object,
    claim: Claim,
    how: Mapping[str, Any],
    confidence: float,
    *,
    conformance: bool = True,
) -> Verdict:
    """Compare an audited training run with the claim, and with what was stated about it."""
    __tracebackhide__ = True
    level = (1 - checks.confidence(confidence)) / (2 if conformance else 1)
    if conformance and level < LEAST_LEVEL:
        raise InputError(
            f"conformance would be held at {level:.2g}, where nothing could fail; {LEAST_LEVEL:g} is the "
            "least: ask for less confidence, or for conformance=False"
        )
    test = getattr(audit, "conformance", None)
    if not callable(test):
        raise InputError(f"audit must be an audited training run or its recording, got {shown(audit)}")
    chosen = {name: value for name, value in how.items() if value}
    if not chosen and (own := _family(claim)) is not None:
        chosen = {"family": own}
    bound, claim = _held_against(audit, claim, confidence_at(level), **chosen)
    hopeless = _hopeless(bound, claim)
    if hopeless and not conformance:
        raise InputError(f"this test cannot fail: {hopeless}")
    notes = _idle(bound, claim)
    if hopeless:
        notes = (f"the bound cannot refute the claim, only conformance can fail: {hopeless}",)
    found = replace(test(), level=level) if conformance else None
    record = getattr(audit, "recording", lambda: audit)()
    if conformance and callable(untested := getattr(record, "not_tested", None)):
        notes += tuple(f"not tested, {topic}: {text}" for topic, text in untested(level).items())
    if ended := getattr(record, "ended", ""):
        notes += (ended,)
    return Verdict(
        bound,
        claim,
        conformance=found,
        contradictions=getattr(record, "contradictions_with", lambda _: ())(claim),
        seed=getattr(audit, "seed", None),
        notes=notes,
    )


def _family(claim: Claim) -> Family | None:
    """The family by which a curve is tested."""
    return None if isinstance(claim, ApproximateDP) else family_of(claim)


def _epsilon(claim: Claim) -> float:
    """The epsilon of a claim; of a curve, at the delta at which it is shown."""
    return claim.epsilon if isinstance(claim, ApproximateDP) else claim.epsilon_at(SHOWN_DELTA)


def _held_against(audit: object, claim: Claim, confidence: float, **how: object) -> tuple[Bound, Claim]:
    """The bound that decides about a claim, and the claim as it is decided about.

    A curve is tested as one of its family where evidence can do so, and else at its point (Theorem 28).
    """
    if isinstance(claim, ApproximateDP):
        return bound_of(audit, claim.delta, confidence, **how), claim
    found, own = bound_of(audit, SHOWN_DELTA, confidence, **how), family_of(claim)
    if own is not None and found.family == own:
        return found, claim
    if own is not None and found.evidence.inversion is Inversion.BISECTION:
        return bound_of(replace(found, family=own), SHOWN_DELTA, confidence), claim
    point = claim.point(found.evidence.charged, FLIPS * (1 - confidence) / 0.05)
    return bound_of(found, point.delta, confidence), point


def _declared_adjacency(mechanism: Any) -> str | None:
    """The adjacency that a mechanism declares; a function declares none, `pairs` only say how to test it."""
    return None if isinstance(mechanism, Function) else getattr(mechanism, "adjacency", None)


def is_audit(value: object) -> bool:
    """Whether a value is an audit that was already made, rather than a mechanism."""
    asked = any(callable(getattr(value, name, None)) for name in ("bound", "p_value"))
    return made_bound(value) is not None or (asked and not hasattr(value, "sample"))


def _require_unbelieving(mechanism: Any, game: Mapping[str, Any], claimed: float) -> None:
    """Refuse rules that trust stated losses: they cannot refute a claim that no stated loss exceeds."""
    __tracebackhide__ = True
    rule = Bet() if game.get("rule") is None and game.get("rounds") is not None else game.get("rule")
    stated = getattr(mechanism, "epsilon", math.inf)
    believing = game.get("score") is None and isinstance(rule, Soft | Bet | SurestFirst)
    if believing and isinstance(stated, int | float) and stated <= claimed:
        raise InputError(
            f"this test cannot fail: {rule!r} believes the losses that the mechanism states, which are at "
            f"most its own epsilon = {stated:g}, where {claimed:g} is claimed; count guesses instead, as "
            "Ranked(), Surest(k), UpTo(budget) and All() do"
        )


def _says_nothing(audit: object, score: Score | None) -> tuple[str, ...]:
    """What the reader of a test must know: that all scores are the same, or upside down."""
    if score is None or not isinstance(audit, Transcript):
        return ()
    scores = np.asarray(score(audit.output, np.zeros_like(audit.bits)), dtype=np.float64)
    if len(scores) > 1 and (scores == scores[0]).all():
        return ("every score is the same, so nothing could be refuted: does the score use the output?",)
    return (UPSIDE_DOWN,) if are_upside_down(scores, audit.bits) else ()


def _idle(bound: Bound, claim: Claim) -> tuple[str, ...]:
    """A note for a passed test in which too little was guessed or staked to refute the claim."""
    if bound.refutes(claim):
        return ()
    best = bound.evidence.with_all_right()
    if bound.tally.taken == 0 and (best is None or best.tally(0.0).taken == 0):
        return ("no guess was taken, so nothing could be refuted: do the scores say anything?",)
    if best is not None:
        most = lower_bound(
            best, bound.delta, bound.confidence, adjacency=bound.adjacency, family=bound.family
        )
        if not most.refutes(claim):
            return (
                "with these scores even right guesses alone would not refute the claim: the rule stakes what "
                "the scores say, which is too little",
            )
    return ()


def _hopeless(bound: Bound, claim: Claim) -> str:
    """Why an audit of this size could not have refuted the claim, whatever the outcome; empty if it could."""
    evidence, claimed = bound.evidence, _epsilon(claim)
    if bound.refutes(claim):
        return ""
    most = reach(evidence, bound.delta, bound.confidence, family=bound.family)
    guesses = evidence.most_guesses
    if most is None or most > claimed:
        return ""
    return (
        f"even {guesses} right guesses of {guesses} among {evidence.elements} elements prove only "
        f"epsilon >= {most:.3f} at delta {bound.delta:g} with confidence {bound.confidence:.10g}, where "
        f"{claimed:.6g} is claimed; {remedy(bound, claimed)}"
    )
