"""Verdicts on mechanisms, on finished audits and on audited training runs.

A test that could not have failed is an error. A test that could hardly have failed passes with a note.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound, lower_bound
from canaria.bounds.combine import bound_of, confidence_at, made_bound
from canaria.bounds.conformance import LEAST_LEVEL
from canaria.bounds.reach import reach, remedy
from canaria.claims import ApproximateDP, Claim
from canaria.claims.base import FLIPS_AT_POINT, PERFECT_PRIVACY, for_neighbours
from canaria.claims.families import Family, family_of
from canaria.evidence.base import Inversion
from canaria.game import Score, Transcript
from canaria.game.play import play
from canaria.game.scores import UPSIDE_DOWN, are_upside_down
from canaria.mechanisms import Function
from canaria.rules import Bet, Matched, Soft, SurestFirst
from canaria.testing.verdict import Verdict

SHOWN_DELTA: Final = 1e-5
"""The delta at which the epsilon of a curve is shown."""
ELEMENTS: Final = 1000
"""The default number of elements of a game."""


def examine(
    mechanism: Any, claim: Claim, game: Mapping[str, Any], confidence: float, *, rng: Seed = None
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
        # An object declares its adjacency, so the claim is about that one.
        claim = for_neighbours(claim, _declared_adjacency(mechanism))
        _require_unbelieving(mechanism, game, _epsilon_of(claim))
        if game.get("rule") is None and game.get("rounds") is None and (own := _family(claim)) is not None:
            game = {**game, "rule": Matched(own, confidence)}
        size = ELEMENTS if game.get("n") is None and game.get("pairs") is None else game.get("n")
        audit, seed = play(mechanism, **{**game, "n": size}, rng=rng), rng if isinstance(rng, int) else None
    bound, claim = _bound_against(audit, claim, confidence)
    if reason := _hopeless(bound, claim):
        raise InputError(f"this test cannot fail: {reason}")
    silent = _about_scores(audit, game.get("score"))
    return Verdict(bound, claim, seed=seed, notes=silent or _idle(bound, claim))


def examine_training(
    audit: object, claim: Claim, how: Mapping[str, Any], confidence: float, *, conformance: bool = True
) -> Verdict:
    """Compare an audited training run with the claim, and with what was stated about it."""
    __tracebackhide__ = True
    level = (1 - checks.confidence(confidence)) / (2 if conformance else 1)
    if conformance and level < LEAST_LEVEL:
        raise InputError(
            f"conformance would be tested at level {level:.2g}, where nothing could fail; it must be "
            f"at least {LEAST_LEVEL:g}: lower the confidence, or pass conformance=False"
        )
    test = getattr(audit, "conformance", None)
    if not callable(test):
        raise InputError(f"audit must be an audited training run or its recording, got {shown(audit)}")
    chosen = {name: value for name, value in how.items() if value}
    if not chosen and (own := _family(claim)) is not None:
        chosen = {"family": own}
    bound, claim = _bound_against(audit, claim, confidence_at(level), **chosen)
    reason = _hopeless(bound, claim)
    if reason and not conformance:
        raise InputError(f"this test cannot fail: {reason}")
    notes = _idle(bound, claim)
    if reason:
        notes = (f"the bound cannot refute the claim, only conformance can fail: {reason}",)
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
        seed=getattr(record, "seed", None),
        notes=notes,
    )


def _family(claim: Claim) -> Family | None:
    """The family by which a curve is tested."""
    return None if isinstance(claim, ApproximateDP) else family_of(claim)


def _bound_against(audit: object, claim: Claim, confidence: float, **how: object) -> tuple[Bound, Claim]:
    """The bound that decides about a claim, and the claim that is compared with it.

    A curve is tested as one of its family if the evidence can do so, else at one of its points (Theorem 28).
    """
    if isinstance(claim, ApproximateDP):
        return bound_of(audit, claim.delta, confidence, **how), claim
    found, own = bound_of(audit, SHOWN_DELTA, confidence, **how), family_of(claim)
    if own is not None and found.family == own:
        return found, claim
    if own is not None and found.evidence.inversion is Inversion.BISECTION:
        return bound_of(replace(found, family=own), SHOWN_DELTA, confidence), claim
    # The flips that delta may buy are in proportion to the level: `FLIPS_AT_POINT` is for a level of 0.05.
    point = claim.point(found.evidence.charged, FLIPS_AT_POINT * (1 - confidence) / 0.05)
    return bound_of(found, point.delta, confidence), point


def _declared_adjacency(mechanism: Any) -> str | None:
    """The adjacency that a mechanism declares; a function declares none, `pairs` only say how to test it."""
    return None if isinstance(mechanism, Function) else getattr(mechanism, "adjacency", None)


def is_audit(value: object) -> bool:
    """Whether a value is an audit that was already made, rather than a mechanism."""
    asked = any(callable(getattr(value, name, None)) for name in ("bound", "p_value"))
    return made_bound(value) is not None or (asked and not hasattr(value, "sample"))


def _epsilon_of(claim: Claim) -> float:
    """The epsilon of a claim; of a curve, at the delta at which it is shown."""
    return claim.epsilon if isinstance(claim, ApproximateDP) else claim.epsilon_at(SHOWN_DELTA)


def _require_unbelieving(mechanism: Any, game: Mapping[str, Any], claimed: float) -> None:
    """Refuse rules that trust stated losses: they cannot refute a claim that no stated loss exceeds."""
    __tracebackhide__ = True
    rule = Bet() if game.get("rule") is None and game.get("rounds") is not None else game.get("rule")
    stated = getattr(mechanism, "epsilon", math.inf)
    believing = game.get("score") is None and isinstance(rule, Soft | Bet | SurestFirst)
    if believing and isinstance(stated, int | float) and stated <= claimed:
        raise InputError(
            f"this test cannot fail: {rule!r} trusts the losses that the mechanism states, which are at "
            f"most its own epsilon = {stated:g}, where {claimed:g} is claimed; use a rule that counts "
            "guesses, such as Ranked(), Surest(k), UpTo(budget) or All()"
        )


def _about_scores(audit: object, score: Score | None) -> tuple[str, ...]:
    """A note if all scores are the same, or upside down."""
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
    if bound.tally.taken == 0 and (best is None or best.tally(PERFECT_PRIVACY).taken == 0):
        return ("no guess was taken, so nothing could be refuted: are all scores equal?",)
    if best is not None:
        most = lower_bound(
            best, bound.delta, bound.confidence, adjacency=bound.adjacency, family=bound.family
        )
        if not most.refutes(claim):
            return (
                "with these scores the claim would not be refuted even if every guess were right: the rule "
                "takes its stakes from the scores, and they are too small",
            )
    return ()


def _hopeless(bound: Bound, claim: Claim) -> str:
    """Why an audit of this size could not have refuted the claim, whatever the outcome; empty if it could."""
    evidence, claimed = bound.evidence, _epsilon_of(claim)
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
