"""Results of every kind, and a text that tries to break out of a page."""

from dataclasses import replace

import numpy as np

from canaria import Counts, Result, audit_scores, lower_bound, play
from canaria._core.arrays import Floats, Integers
from canaria.bounds.conformance import Cause, Conformance
from canaria.bounds.parts import Histogram, Ladder, LadderStep
from canaria.bounds.rungs import Rung
from canaria.claims import ApproximateDP, GaussianDP
from canaria.game import result_of_scores
from canaria.game.ladders import ladder_of_gaps
from canaria.mechanisms import CountInSets, XorRandomizedResponse
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
    ladder = None if claimed is None else Ladder.of_scores(claimed, bound.estimate, bound.epsilon)
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


LONG = "a-very-long-name-without-a-single-space-" * 5 + "WWWW" * 20 + " 長い名前" * 20


def _conformance(noise: float, p_value: float, clearest: str = "") -> Conformance:
    return Conformance(
        p_value=p_value,
        noise=noise,
        stated_noise=1.12,
        weight=1.0,
        parts={"noise": p_value},
        causes={"noise": Cause(text=clearest)},
    )


def _rungs(first: float, *, second: float, withdrawn: bool = False) -> tuple[Rung, ...]:
    last = (
        Rung(
            name="measured noise", assumes="also assuming Gaussian noise", withdrawn="the noise is not normal"
        )
        if withdrawn
        else Rung(
            name="measured noise", assumes="also assuming Gaussian noise", least=second, most=second + 9
        )
    )
    return (
        Rung(name="any mechanism", assumes="for any mechanism", least=first),
        Rung(name="DP-SGD", assumes="if it is DP-SGD with 100 steps and sample rate 0.1", least=second),
        last,
    )


def of_every_verdict() -> dict[str, list[Result]]:
    """A page for every verdict that there is, and for what strains the layout."""
    plain, refuted, alone = scored(), scored(2.0), scored(None)
    shown = plain.bound.epsilon
    broken = _conformance(0.55, 1e-12, "step 17 of layer blocks.0.attention.weight")
    family = result_of_scores(*_normal_scores(), delta=1e-5, family="gaussian", rng=0, name="family")
    curve = lower_bound(Counts(90, 100, 100), 1e-5).result(GaussianDP(1.0), name="curve")
    pages = {
        "refuted": refuted,
        "not refuted": plain,
        "no claim": alone,
        "not refuted; not as stated": replace(plain, conformance=broken),
        "refuted and not as stated": replace(refuted, conformance=broken),
        "as stated": replace(plain, conformance=_conformance(1.11, 0.4)),
        "contradicted": replace(plain, contradictions=("99 steps were taken, 100 stated", LONG)),
        "contradicted, noise as stated": replace(
            plain, conformance=_conformance(1.11, 0.4), contradictions=("99 steps were taken, 100 stated",)
        ),
        "withdrawn": replace(plain, rungs=_rungs(shown, second=shown, withdrawn=True)),
        "refuted with an assumption": replace(plain, rungs=_rungs(shown, second=4.5)),
        "family": family,
        "curve": curve,
        "nothing shown": Result(lower_bound(Counts(0, 0, 10)), ApproximateDP(1.0, 0), name="nothing guessed"),
        "infinite claim": Result(lower_bound(Counts(50, 50, 50)), ApproximateDP(float("inf"), 0)),
        "large claim": Result(lower_bound(Counts(50, 50, 50)), ApproximateDP(999999.0, 0)),
        "long": replace(
            plain,
            name=LONG,
            command=LONG,
            facts={LONG: LONG},
            ladder=Ladder(LONG, 4.0, (LadderStep(LONG, 2.0), LadderStep("chance", shown)), LONG),
            rungs=(Rung(name=LONG, assumes=LONG, least=shown), Rung(name=LONG, assumes=LONG, withdrawn=LONG)),
        ),
        "training": simulated(Dirac(400, 2), 0).report(claimed=2.0, delta=1e-5),
    }
    return {
        **{name: [one] for name, one in pages.items()},
        "several": [*list(pages.values())[:3], pages["long"]],
    }


def _normal_scores() -> tuple[Floats, Integers]:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2, 400)
    return rng.normal(2.0 * bits), bits
