"""Results of every kind, and a text that tries to break out of a page."""

from dataclasses import replace

import numpy as np

from canaria import Counts, Result, audit_scores, lower_bound, play
from canaria.claims import ApproximateDP
from canaria.mechanisms import CountInSets, XorRandomizedResponse
from canaria.results.ladders import ladder_of_gaps, ladder_of_scores
from canaria.results.parts import Histogram
from canaria.rules import Soft
from canaria.theory import gaps
from canaria.training import Dirac
from tests.training.simulated import simulated

NASTY = "</script><script>alert('run')</script><img src=x onerror=alert(1)>{{ 7 * 7 }}[bold]\u202e"


def scored(claimed: float | None = 4.0, **fields: object) -> Result:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 500)
    scores = rng.normal(2.0 * bits)
    bound = audit_scores(scores, bits, delta=1e-5, rng=1)
    ladder = None if claimed is None else ladder_of_scores(claimed, bound)
    claim = None if claimed is None else ApproximateDP(claimed, bound.delta)
    return replace(
        Result(bound, claim, name="scores", histogram=Histogram.of(scores, bits), ladder=ladder, seed=1),
        **fields,
    )


def of_every_kind() -> list[Result]:
    secret = XorRandomizedResponse(2.0)
    bound = play(secret, n=80, rng=0).bound()
    return [
        scored(),
        scored(2.0),
        scored(None),
        simulated(Dirac(400, 2), 0).report(claimed=2.0, delta=1e-5),
        Result(lower_bound(Counts(73, 100, 1000)), name="counts"),
        Result(lower_bound(Counts(0, 0, 10)), ApproximateDP(1.0, 0), name="nothing guessed"),
        Result(
            lower_bound(Counts(50, 50, 50)), ApproximateDP(float("inf"), 0), name="all right, nothing claimed"
        ),
        Result(bound, None, name="xor", ladder=ladder_of_gaps(gaps(secret, 80, 20), bound)),
        Result(play(CountInSets(4), n=80, rounds=CountInSets(4).rounds(80), rng=0).bound(), name="adaptive"),
        Result(play(CountInSets(4), n=80, rule=Soft(), rng=0).bound(), name="weighted"),
    ]
