"""What a type checker sees of the public interface; checked by `make lint`, never run."""

from pathlib import Path
from typing import assert_type

import numpy as np

from canaria import (
    Bound,
    Counts,
    Result,
    assert_private,
    audit_scores,
    classic,
    combine,
    lower_bound,
    plan,
    plant,
    play,
)
from canaria.blackbox import Planted
from canaria.bounds import Combined
from canaria.claims import ApproximateDP
from canaria.evidence import Evidence, Tally
from canaria.game import Transcript, replay, result_of_scores
from canaria.mechanisms import RandomizedResponse
from canaria.rules import Bet, Ranked, Soft
from canaria.training.plan import Plan


def seen_by_a_type_checker() -> None:
    scores, bits = [0.5, -1.0, 2.0], [True, False, True]
    claim = ApproximateDP(1.0, delta=1e-5)

    bound = audit_scores(scores, bits, delta=1e-5, rule=Soft(), rng=0)
    assert_type(bound, Bound)
    assert_type(bound.epsilon, float)
    assert_type(bound.tally, Tally)
    assert_type(bound.refutes(claim), bool)
    assert_type(bound.result(claim), Result)
    assert_type(bound.result(claim).report("report.html"), Path)
    assert_type(audit_scores(np.zeros(3), np.ones(3), rng=np.random.default_rng(0)), Bound)

    evidence: Evidence = Counts(73, 100, 1000)
    assert_type(evidence.p_value(claim), float)
    assert_type(lower_bound(evidence, 1e-5, 0.95), Bound)
    assert_type(combine({"one": evidence, "other": bound}), Combined)

    mechanism = RandomizedResponse(1.0)
    assert_type(play(mechanism, n=100, rng=0), Transcript)
    assert_type(play(mechanism, rule=Bet(), n=100, rounds=[[0], [1]]), Transcript)
    assert_type(replay(bits, scores, lambda output, known: np.asarray(output), rule=Ranked()), Transcript)
    assert_type(classic(mechanism, np.ones(5), index=0, repetitions=10), Transcript)
    assert_type(assert_private(mechanism, 1.0, 0.0), Bound)
    assert_type(plan(epsilon=2.0, delta=1e-5, steps=100, sample_rate=0.1), Plan)
    assert_type(plant(np.zeros((10, 2)), np.ones((3, 2)), rng=0), Planted)
    assert_type(result_of_scores(scores, bits, claim, rng=0), Result)
    assert_type(lower_bound(evidence).result(claim).refuted, bool | None)
