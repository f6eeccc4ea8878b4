"""The result of a recorded training run: bound, claim, conformance, and facts to interpret them."""

from typing import TYPE_CHECKING, Final

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError
from canaria.bounds.bound import Bound
from canaria.bounds.conformance import Conformance
from canaria.bounds.parts import Histogram, Ladder
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim, DpSgd
from canaria.claims.families import Family
from canaria.game.ladders import ladder_of_dpsgd
from canaria.mechanisms.dpsgd import SubsampledGaussian
from canaria.training.canaries.designs import Dense
from canaria.training.conformance.claimed import DELTA, false_claims
from canaria.training.conformance.facts import facts_of, tested_topics
from canaria.training.conformance.residuals import AT_ALL_WEIGHTS, SYMPTOMS
from canaria.training.conformance.rungs import rungs_of
from canaria.training.conformance.tested import certain_faults, tested_at

if TYPE_CHECKING:
    from canaria.training.recording import Recording

_OF_SIZE: Final = {"size", "steps", "places", "noise"}
"""The parts of conformance that fail if there is too little noise."""
_OF_REUSE: Final = {"repeats", "ties"}
"""Those that fail if noise is used again, or has few values."""


def result_of(
    run: "Recording", claim: Claim | None, bound: Bound, *, score: str, adaptive: bool, rungs: bool, name: str
) -> Result:
    """The bound, the claim and the conformance test; see `Recorded.report`."""
    found = tested_at(run, run.noise_multiplier)
    return Result(
        bound,
        claim,
        name=name,
        histogram=Histogram.of(run.losses(np.zeros_like(run.bits), score), run.bits),
        ladder=_ladder(run, claim, bound, plain=score == "likelihood" and not adaptive),
        rungs=rungs_of(run, bound, score) if rungs and bound.delta and run.own_family else (),
        conformance=found,
        facts=facts_of(run, tested=found is not None),
        contradictions=_once(contradictions_with(run, claim, bound.delta), found),
        remarks=(*run.findings.doubts, *run.findings.remarks, *_large_delta(run, claim)),
        tested=tested_topics(run, claim, found),
        seed=run.seed,
    )


def contradictions_with(run: "Recording", claim: Claim | None, delta: float = DELTA) -> tuple[str, ...]:
    """Differences that are certain, between training and what was stated or claimed."""
    return (*certain_faults(run), *false_claims(run, claim, delta))


def _once(contradictions: tuple[str, ...], found: Conformance | None) -> tuple[str, ...]:
    """Without what whole sums show of a fault that conformance names more precisely."""
    failures = set() if found is None else set(found.failures)
    told = SYMPTOMS if failures & _OF_REUSE else (AT_ALL_WEIGHTS,) if failures & _OF_SIZE else ()
    return tuple(one for one in contradictions if not (told and one.endswith(told)))


def promised(
    run: "Recording",
    claimed: float | Claim | None,
    delta: float | None,
    adjacency: str,
    family: Family | None,
) -> Claim | None:
    """The claim: as given, from its epsilon, or from the stated noise."""
    if isinstance(claimed, DpSgd) and run.rows > 1:
        raise InputError(
            f"a claim of DP-SGD is about single rows, the bound about users of {run.rows}: give the ε "
            "and δ of users, which follow by group privacy"
        )
    if isinstance(claimed, Claim):
        return claimed
    if claimed is None:
        if family is None or family != run.own_family or run.noise_multiplier == 0:
            return None
        if run.noise_changes:
            raise InputError(
                "the stated noise changes from step to step, so no claim of the family is what it "
                "promises; give the claim"
            )
        return run.promise_of(run.noise_multiplier)
    if delta is None:
        raise InputError(f"delta of the claim epsilon = {claimed} must be given: it is part of the claim")
    epsilon = checks.nonnegative("claimed", claimed)
    return ApproximateDP(epsilon, delta, adjacency) if family is None else family.at(epsilon, delta)


def _ladder(run: "Recording", claim: Claim | None, bound: Bound, *, plain: bool) -> Ladder | None:
    """The ladder, with all gaps only for the guesser whose law is known (one run, by the likelihood)."""
    if claim is None:
        return None
    # Rounded down: a ladder must not begin above the claim.
    claimed = claim.least_epsilon_at(bound.delta)
    # Accountants of DP-SGD assume Poisson sampling of single rows. The canaries must match that.
    is_dpsgd = run.sampling.is_poisson and run.rows == 1
    if isinstance(run.design, Dense) or not (plain and is_dpsgd) or bound.family is not None:
        return Ladder.of_scores(claimed, bound.estimate, bound.epsilon)
    mechanism = SubsampledGaussian(
        dimension=run.design.coordinates,
        steps=run.steps,
        sample_rate=run.sample_rate,
        noise_multiplier=run.noise_of_scores,
    )
    return ladder_of_dpsgd(mechanism, len(run.bits), claimed, bound)


def _large_delta(run: "Recording", claim: Claim | None) -> tuple[str, ...]:
    """A note if delta is 1/rows or more, which permits publishing a row."""
    rows = 0 if run.drawn is None else run.drawn.rows
    if not isinstance(claim, ApproximateDP) or claim.delta * rows < 1:
        return ()
    return (f"δ = {claim.delta:g} is not below 1/{rows}: it permits publishing a row chosen at random",)
