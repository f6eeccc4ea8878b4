"""Every claim its own looks (Theorem 29), and independent elements (Theorem 30)."""

import json
import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from canaria import Counts, InputError, audit_scores, combine, lower_bound
from canaria._core.arrays import Hits
from canaria.claims import ApproximateDP, Claim, Curve, DpSgd, GaussianDP, LaplaceDP, families
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.claims.families import Family
from canaria.evidence import (
    Evidence,
    MatchedCounts,
    Ranking,
    Split,
    _curve_count,
    _independent,
    _looks,
    to_dict,
)
from canaria.evidence.inversion import weakest_refuted
from canaria.lab.validity.curves import CURVES
from canaria.mechanisms import SubsampledGaussian as Mechanism
from canaria.rules import Matched
from canaria.rules.door import guess_once

GAUSSIAN = families.Gaussian()


def hits_of(shift: float, n: int, seed: int) -> Hits:
    """Right and wrong guesses about normal scores, both tails alternating."""
    rng = np.random.default_rng([seed, n, int(100 * shift)])
    bits = 2 * rng.integers(0, 2, n) - 1
    seen: list[Hits] = []

    class Spy(Matched):
        def __call__(self, scores, rng):  # type: ignore[no-untyped-def]
            made = super().__call__(scores, rng)
            seen.append(made.guesses.hits(hidden[0]))
            return made

    order = np.random.default_rng(seed).permutation(n)
    hidden = [bits[order]]
    Spy("gaussian")(rng.normal(shift * (bits > 0))[order], rng)
    return seen[0]


@pytest.mark.parametrize(
    ("n", "audits", "least"),
    [
        (200, 40, {1.0: 1.75, 2.0: 4.5, 3.0: 6.6}),
        (1000, 40, {0.5: 0.9, 1.0: 2.45, 2.0: 5.4, 3.0: 8.2}),
        (5000, 20, {1.0: 2.8, 2.0: 6.1, 3.0: 9.3}),
        (100_000, 8, {1.0: 3.1, 2.0: 7.0, 3.0: 10.9}),
    ],
)
def test_families_against_the_prototype(n: int, audits: int, least: dict[float, float]) -> None:
    """What the issue asks for, of the mean of some audits with fixed seeds; `curves.md` section 3 shows as much."""
    for shift, wanted in least.items():
        rng, found = np.random.default_rng(int(n + 100 * shift)), []
        for _ in range(audits):
            bits = rng.integers(0, 2, n) * 2 - 1
            scores = rng.normal(shift * (bits > 0))
            found.append(audit_scores(scores, bits, 1e-5, family="gaussian", rng=rng).epsilon)
        assert np.mean(found) >= wanted, (shift, np.mean(found))


@pytest.mark.full
@pytest.mark.parametrize(
    ("epsilon", "steps", "rate", "least"),
    [(2.0, 100, 0.1, 0.73), (8.0, 100, 0.1, 3.1), (8.0, 1000, 0.01, 2.75)],
)
def test_dpsgd_against_its_family(epsilon: float, steps: int, rate: float, least: float) -> None:
    """Power in 40 audits, and over-claims in 10,000 correct trainings: a rate of 5% is exceeded by chance once in 10^6."""
    noise = dpsgd_noise_multiplier(epsilon, 1e-5, steps, rate)
    family, n, rng = families.DpSgdFamily(steps, rate), 1000, np.random.default_rng(5)
    mechanism, rule, found, wrong = (
        Mechanism(dimension=n, steps=steps, sample_rate=rate, noise_multiplier=noise),
        Matched(family),
        [],
        0,
    )
    ends = family.stretches(n)
    true = family.claim(float(ends[np.searchsorted(ends, 1 / noise)]))
    for audit in range(10_000):
        bits = rng.choice(np.array([-1, 1], dtype=np.int8), (1, n))
        scores = mechanism.loss(mechanism.sample(bits, rng), np.zeros_like(bits))[0]
        evidence = guess_once(rule, scores, bits[0], rng)[1]
        wrong += evidence.refutes(true, 0.05)
        if audit < 40:
            found.append(lower_bound(evidence, 1e-5).epsilon)
    assert np.mean(found) >= least
    assert wrong <= stats.binom.isf(1e-6, 10_000, 0.05)


@pytest.mark.parametrize("case", [case for case in CURVES if case.n == 200], ids=lambda case: case.name)
def test_true_claims_are_refuted_rarely(case) -> None:  # type: ignore[no-untyped-def]
    """600 audits each; more than 5% of them, by chance once in 10^6. The laboratory plays 20,000."""
    claim = GAUSSIAN.at(case.epsilon, case.delta)
    games = case.draw((600, case.n), np.random.default_rng(3), 0.05)
    rng, refuted = np.random.default_rng(4), 0
    for scores, bits in zip(games.scores, games.bits, strict=True):
        refuted += guess_once(Matched("gaussian"), scores, bits, rng)[1].refutes(claim, 0.05)
    assert refuted <= stats.binom.isf(1e-6, 600, 0.05)


def test_a_bound_is_the_end_of_the_run() -> None:
    """All claims up to it are refuted, by brute force over a fine grid; the next ones of the stretch are not."""
    for shift in (0.5, 1.0, 2.5):
        evidence = MatchedCounts(GAUSSIAN, hits_of(shift, 500, 1))
        bound = lower_bound(evidence, 1e-5)
        assert isinstance(bound.claim, GaussianDP)
        for mu in np.linspace(0.005, bound.claim.mu, 60):
            assert evidence.refutes(GaussianDP(float(mu)), 0.05)
            assert bound.refutes(GaussianDP(float(mu)))
        assert not evidence.refutes(GaussianDP(1.003 * bound.claim.mu), 0.05)
        assert not bound.refutes(GaussianDP(1.003 * bound.claim.mu))
        assert bound.epsilon == pytest.approx(bound.claim.epsilon_at(1e-5), rel=1e-6)
        assert bound.epsilon <= bound.claim.epsilon_at(1e-5)


def test_the_verdict_follows_from_the_bound() -> None:
    """DP-SGD was once refuted at ε = 8 beside "ε ≥ 7.071": the bound stopped at the end of a stretch."""
    family, noises = families.DpSgdFamily(steps=20, sample_rate=0.1), (1.0, 0.97, 0.985, 0.955)
    for seed in range(4):
        evidence = MatchedCounts(family, hits_of(2.5, 1000, seed))
        bound = lower_bound(evidence, 1e-5)
        assert isinstance(bound.claim, DpSgd)
        last = bound.claim.noise_multiplier
        for share in noises:
            claim = DpSgd(noise_multiplier=share * last, sample_rate=0.1, steps=20)
            assert bound.refutes(claim) is (share == 1.0)
            assert bound.refutes(claim) is (bound.epsilon >= claim.least_epsilon_at(1e-5))
            assert evidence.refutes(claim, 0.05) is (share == 1.0), "the bound reaches as far as its p-values"
    both = combine({"a": evidence, "b": MatchedCounts(family, hits_of(1.0, 1000, 9))}, delta=1e-5)
    assert isinstance(both.bound.claim, DpSgd)
    assert both.refutes(both.bound.claim)
    assert not both.refutes(
        DpSgd(noise_multiplier=0.99 * both.bound.claim.noise_multiplier, sample_rate=0.1, steps=20)
    )


def test_p_values_and_verdicts_agree() -> None:
    for seed in range(12):
        evidence = MatchedCounts(GAUSSIAN, hits_of(1.0, 300, seed))
        for mu in (0.05, 0.2, 0.5, 0.9, 2.0):
            p_value = evidence.p_value(GaussianDP(mu))
            assert 0 < p_value <= 1
            for level in (p_value * (1 - 1e-9), p_value * (1 + 1e-9), 0.01, 0.05):
                assert evidence.refutes(GaussianDP(mu), level) <= (p_value <= level * (1 + 1e-12))
                if p_value * (1 + 1e-10) < level <= 0.1:
                    assert evidence.refutes(GaussianDP(mu), level)


@pytest.mark.parametrize("n", [1, 6, 50, 999])
def test_looks_are_fixed_in_advance(n: int) -> None:
    """They fit the elements, their shares add up to at most 1, and they are the same each time."""
    for family in (GAUSSIAN, families.Laplace(), families.Approximate(1e-5)):
        for confidence in (0.5, 0.9999):
            plan = _looks.planned(family, n, confidence)
            assert len(plan) == len(family.stretches(n))
            for stretch in plan:
                assert 1 <= len(stretch.looks) <= 4
                assert all(1 <= look.taken <= n and look.share > 0 for look in stretch.looks)
                assert math.fsum(look.share for look in stretch.looks) <= _looks.MOST_OF_LOOKS
            again = _looks._plan(family, n, confidence)
            assert [row[0] for row in again.tolist()] == [stretch.last for stretch in plan]


def test_a_plan_that_was_tampered_with_is_not_believed(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _looks.planned.cache_clear()
    plan = _looks.planned(GAUSSIAN, 77, 0.95)
    (file,) = (tmp_path / "canaria").glob("looks-*")
    rows = np.load(file)
    rows[:, 2] *= 3
    np.save(file, rows)
    _looks.planned.cache_clear()
    assert _looks.planned(GAUSSIAN, 77, 0.95) == plan
    _looks.planned.cache_clear()


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize(
    "family", [GAUSSIAN, families.Laplace(), families.Approximate(1e-5), families.DpSgdFamily(3, 0.5)]
)
def test_evidence_is_written_and_read_back(family: Family, independent: bool) -> None:
    evidence = MatchedCounts(family, hits_of(1.5, 150, 0), independent=independent)
    again = Evidence.from_dict(json.loads(json.dumps(to_dict(evidence))))
    first, second = (lower_bound(one, 1e-5) for one in (evidence, again))
    assert first.epsilon == second.epsilon > 0 or independent
    assert first.to_dict() == second.to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"taken": [5, 4]}, "taken must rise"),
        ({"taken": []}, "must be as long as"),
        ({"correct": [9, 9]}, "correct must grow"),
        ({"elements": 3}, "taken must rise from 1 up to at most 3"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"family": {"kind": "nonsense"}}, "family must be of a kind"),
        ({"family": 3}, "family must be of a kind"),
        ({"independent": 1}, "independent must be True or False"),
        ({"taken": [2.5, 9]}, "taken must hold integers"),
    ],
)
def test_what_cannot_be_read(change: dict[str, object], message: str) -> None:
    record = {"kind": "MatchedCounts", "family": {"kind": "gaussian"}, "elements": 10, "confidence": 0.95}
    record |= {"taken": [5, 9], "correct": [4, 7], "independent": False}
    with pytest.raises(InputError, match=message):
        Evidence.from_dict({**record, **change})
    with pytest.raises(InputError, match="which is a look of the family of Gaussian DP"):
        Evidence.from_dict(record).p_value(GaussianDP(0.01))


def test_claims_of_another_family_are_refused() -> None:
    evidence = MatchedCounts(GAUSSIAN, hits_of(2.0, 200, 0))
    bound = lower_bound(evidence, 1e-5)
    for claim in (
        ApproximateDP(1.0, 1e-5),
        LaplaceDP(1.0),
        Curve([0.0], [0.1]),
        DpSgd(noise_multiplier=1.0, sample_rate=0.5, steps=1),
    ):
        with pytest.raises(InputError, match="claim must be of the family of Gaussian DP"):
            evidence.p_value(claim)
        with pytest.raises(InputError, match="refutes only claims of that family"):
            bound.refutes(claim)
    with pytest.raises(InputError, match="no finite epsilon at delta = 0"):
        lower_bound(evidence)
    assert "Refuted, at 95% confidence: that this mechanism is as private as" in bound.sentence
    assert "If its privacy profile is that of Gaussian noise, its μ is above" in bound.sentence
    silent = lower_bound(MatchedCounts(GAUSSIAN, [1, 0] * 50), 1e-5)
    assert (silent.epsilon, silent.claim) == (0.0, None)
    assert silent.sentence == "No claim of the family of Gaussian DP is refuted at 95% confidence."


@pytest.mark.parametrize(
    "evidence",
    [Counts(95, 100, 1000), Counts(95, 100, 1000, one_sided=True), Ranking(hits_of(2.0, 300, 0))],
    ids=["counts", "one-sided", "ranking"],
)
def test_any_evidence_takes_a_family(evidence: Evidence) -> None:
    """The run ends at a claim that is refuted, and nothing stronger that is tested is kept."""
    bound = lower_bound(evidence, 1e-5, family=GAUSSIAN)
    assert isinstance(bound.claim, GaussianDP)
    for end in GAUSSIAN.stretches(evidence.elements):
        if end <= bound.claim.mu:
            assert evidence.refutes(GaussianDP(float(end)), 0.05)
    if isinstance(evidence, Counts) and not evidence.one_sided:
        assert bound.claim.mu == pytest.approx(0.8026, abs=2e-3), "the table of `curves.md` section 2"


def test_several_audits_of_one_family() -> None:
    first, second = (lower_bound(MatchedCounts(GAUSSIAN, hits_of(2.0, 200, seed)), 1e-5) for seed in (0, 1))
    joint = combine({"a": first, "b": second})
    assert 0 < joint.bound.epsilon <= max(first.epsilon, second.epsilon)
    assert "all 2 bounds hold at once" in str(joint)
    with pytest.raises(InputError, match="one family of claims"):
        combine({"a": first, "b": lower_bound(Counts(90, 100, 200), 1e-5)})
    other = MatchedCounts(families.Laplace(), hits_of(2.0, 200, 0))
    with pytest.raises(InputError, match="different families of claims"):
        Split((first.evidence, other), (0.5, 0.5))


@pytest.mark.parametrize(("n", "taken", "mu"), [(60, 12, 0.6), (100, 30, 1.0), (80, 80, 0.5), (100, 40, 2.0)])
def test_the_product_test_is_exact(n: int, taken: int, mu: float) -> None:
    """Against simulated independent elements, guessed by the largest losses: never below, beyond chance of 10^-6."""
    rng, games, lines = np.random.default_rng(2), 20_000, GaussianDP(mu).lines()
    bits = rng.integers(0, 2, (games, n))
    losses = rng.normal(mu * (bits - 0.5))
    surest = np.argsort(-np.abs(losses), axis=1)[:, :taken]
    right = (np.take_along_axis(losses, surest, 1) > 0) == (np.take_along_axis(bits, surest, 1) > 0)
    counts = right.sum(axis=1)
    for correct in np.unique(np.quantile(counts, [0.3, 0.7, 0.9, 0.97], method="nearest")).tolist():
        p_value, seen = _independent.p_value(n, taken, correct, lines), (counts >= correct).sum()
        assert stats.binom.sf(seen - 1, games, p_value) > 1e-6
        assert p_value <= 1.15 * seen / games + 3e-3
        assert p_value <= _curve_count.p_value(n, taken, correct, lines) * (1 + 1e-9)


def lucky_together(mu: float, n: int, rng: np.random.Generator) -> MatchedCounts:
    """All bits pass one Gaussian channel with one common size: each element is exactly mu-GDP."""
    level = abs(mu * rng.normal(mu / 2))
    return MatchedCounts(GAUSSIAN, rng.random(n) < 1 / (1 + math.exp(-level)), independent=True)


def lucky_apart(mu: float, n: int, rng: np.random.Generator) -> MatchedCounts:
    """Each element passes a Gaussian channel of its own."""
    bits = rng.integers(0, 2, n)
    losses = rng.normal(mu * (bits - 0.5))
    order = np.argsort(-np.abs(losses))
    return MatchedCounts(GAUSSIAN, (losses[order] > 0) == (bits[order] > 0), independent=True)


def accused_by_product(counts: MatchedCounts, claim: GaussianDP) -> bool:
    """What the product test says by itself, without what speaks against independence."""
    return any(
        _independent.p_value(counts.elements, look.taken, counts._right(look), claim.lines())
        <= 0.05 * look.share
        for look in counts._looks(claim)
    )


@pytest.mark.parametrize(
    ("n", "mu", "audits"),
    [
        (300, 1.0, 300),
        (300, 2.0, 300),
        *(pytest.param(1000, mu, 2000, marks=pytest.mark.full) for mu in (0.5, 1.0, 2.0)),
    ],
)
def test_shared_luck_is_withdrawn(n: int, mu: float, audits: int) -> None:
    """Where all share their luck the product test accuses a true claim; with what speaks against it, rarely.

    Independent elements are accused rarely, too, and believed to be independent in nine of ten audits. A rate
    of 5% is exceeded by chance once in 10^6.
    """
    rng, allowed, claim = np.random.default_rng(6), stats.binom.isf(1e-6, audits, 0.05), GaussianDP(mu)
    together = [lucky_together(mu, n, rng) for _ in range(audits)]
    apart = [lucky_apart(mu, n, rng) for _ in range(audits)]
    assert sum(accused_by_product(one, claim) for one in together) > audits / 5
    assert sum(one.refutes(claim, 0.05) for one in together) <= allowed
    assert sum(one.refutes(claim, 0.05) for one in apart) <= allowed
    assert sum(one.withdrawn is not None for one in apart) <= audits / 10


def test_what_speaks_against_independence_is_said() -> None:
    rng = np.random.default_rng(6)
    apart = lucky_apart(2.0, 300, rng)
    assert "elements do not influence each other" in lower_bound(apart, 1e-5).sentence
    flat = MatchedCounts(GAUSSIAN, rng.random(600) < 0.9, independent=True)
    assert "otherwise than those of the family" in lower_bound(flat, 1e-5).sentence


def test_a_matched_look_beats_one_for_all_claims() -> None:
    """For epsilon at delta, matched looks are as good as `Ranked`, on scores with two tails; for a curve, far better."""
    found = {"ranked": [], "approximate:delta=1e-05": [], "gaussian": []}  # type: ignore[var-annotated]
    rng = np.random.default_rng(9)
    for _ in range(30):
        bits = rng.integers(0, 2, 1000)
        scores = rng.normal(1.0 * bits)
        for family, bounds in found.items():
            asked = partial(audit_scores, scores, bits, 1e-5, rng=1)
            bounds.append((asked() if family == "ranked" else asked(family=family)).epsilon)
    means = {name: float(np.mean(bounds)) for name, bounds in found.items()}
    assert 0.97 * means["ranked"] <= means["approximate:delta=1e-05"] <= 1.1 * means["ranked"]
    assert means["gaussian"] >= 1.4 * means["ranked"]


def test_the_weakest_refuted_claim_is_a_claim_of_the_family() -> None:
    claim: Claim | None = weakest_refuted(
        MatchedCounts(families.Laplace(), hits_of(3.0, 400, 2)), families.Laplace(), 0.05
    )
    assert isinstance(claim, LaplaceDP)
    assert str(claim).endswith(f"{claim.epsilon:.6g}")
