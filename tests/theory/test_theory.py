"""Efficacy, gaps and tightness: closed forms, enumeration, and the paper's asymptotics."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from canaria import Counts, InputError, lower_bound
from canaria.claims.base import PERFECT_PRIVACY
from canaria.game import play_many
from canaria.mechanisms import (
    AllOrNothing,
    Count,
    CountInSets,
    LocalGaussian,
    LocalLaplace,
    Mechanism,
    NameAndShame,
    NoisyCountInSets,
    RandomizedResponse,
    Xor,
    XorInPairs,
    XorRandomizedResponse,
)
from canaria.rules import All
from canaria.theory import (
    ac_ddp,
    ae_ac_ddp,
    certain_elements,
    ddp,
    demonstrate_full_knowledge,
    efficacy,
    exposed_elements,
    gaps,
    tightness,
    total_variation,
)
from tests.mechanisms.models import CASES, NAMES, Model


def p(x: float) -> float:
    return float(special.expit(x))


def absolute_deviation(n: int) -> float:
    counts = np.arange(n + 1)
    return float(stats.binom.pmf(counts, n, 0.5) @ np.abs(counts - n / 2))


CLOSED: list[tuple[Mechanism, int, int | None, float]] = [
    (AllOrNothing(0.3), 20, None, 0.65),
    (AllOrNothing(0.3), 20, 4, 0.65),
    (NameAndShame(), 50, 50, 0.51),
    (NameAndShame(), 50, 5, 0.6),
    (Xor(), 7, None, 0.5),
    (XorRandomizedResponse(2.0), 7, None, 0.5),
    (XorInPairs(), 8, None, 0.5),
    (LocalLaplace(2.0), 30, None, 1 - math.exp(-1) / 2),
    (RandomizedResponse(1.2), 30, 7, p(1.2)),
    (LocalGaussian(0.9), 30, None, float(special.ndtr(1 / 0.9))),
    *((Count(), n, None, 0.5 + absolute_deviation(n) / n) for n in (1, 2, 9, 50)),
    (CountInSets(1), 10, None, 1.0),
]


@pytest.mark.parametrize(("mechanism", "n", "k", "expected"), CLOSED, ids=repr)
def test_closed_forms(mechanism: Mechanism, n: int, k: int | None, expected: float) -> None:
    found = efficacy(mechanism, n, k)
    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.error == 0
    assert ae_ac_ddp(mechanism, n, k) == found


@pytest.mark.parametrize(("mechanism", "n", "k", "expected"), CLOSED, ids=repr)
def test_closed_forms_are_what_games_show(
    mechanism: Mechanism, n: int, k: int | None, expected: float
) -> None:
    """Mean accuracy of the maximum-likelihood guesser over 2,000 games, within 4 standard errors."""
    from canaria.rules import Surest

    games = play_many(mechanism, None, Surest(k or n), n, 2000, rng=3)
    accuracy = np.array([game.evidence.tally(PERFECT_PRIVACY).correct / (k or n) for game in games])
    assert accuracy.mean() == pytest.approx(expected, abs=4 * accuracy.std() / math.sqrt(2000) + 1e-12)


def test_count_approaches_one_half() -> None:
    """At most 1/2 + 1 / (2 sqrt(n))."""
    for n in (10, 100, 1000, 10_000):
        assert 0.5 < efficacy(Count(), n).value <= 0.5 + 1 / (2 * math.sqrt(n))


def test_simulation_agrees_with_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = [f(CountInSets(3), 6) for f in (efficacy, ac_ddp, total_variation)]
    monkeypatch.setattr(CountInSets, "outcomes", lambda self, n: None)
    for found, f in zip(exact, (efficacy, ac_ddp, total_variation), strict=True):
        simulated = f(CountInSets(3), 6, rng=1)
        assert simulated.error > 0
        assert simulated.value == pytest.approx(found.value, abs=4 * simulated.error)


@pytest.mark.parametrize(("model", "n"), CASES, ids=NAMES)
def test_the_chain(model: Model, n: int) -> None:
    """E*_n <= E*_k <= AC <= p(DDP) <= p(epsilon), within 4 standard errors where simulated."""
    mechanism = model.mechanism
    every, some = efficacy(mechanism, n, rng=0), efficacy(mechanism, n, max(1, n // 2), rng=1)
    average = ac_ddp(mechanism, n, rng=2)
    slack = 4 * (every.error + some.error + average.error) + 1e-9
    assert every.value <= some.value + slack
    assert some.value <= average.value + slack
    assert average.value <= p(ddp(mechanism, n)) + slack
    assert ddp(mechanism, n) <= mechanism.epsilon + 1e-9


@pytest.mark.parametrize(("model", "n"), CASES, ids=NAMES)
def test_total_variation_identity(model: Model, n: int) -> None:
    """E*_n = 1/2 + TV / 2; TV by brute force over bits and outputs for discrete mechanisms."""
    mechanism = model.mechanism
    shown, distance = efficacy(mechanism, n, rng=0), total_variation(mechanism, n, rng=0)
    assert shown.value == pytest.approx(
        0.5 + distance.value / 2, abs=4 * (shown.error + distance.error) + 1e-9
    )
    if not model.discrete or n > 4:
        return
    vectors = [np.array(s, dtype=np.int8) for s in itertools.product((-1, 1), repeat=n)]
    rng = np.random.default_rng(0)
    seen = np.concatenate([mechanism.sample(np.tile(s, (400, 1)), rng) for s in vectors])
    outputs = np.unique(seen, axis=0)
    table = np.exp([[model.likelihood(o, s) for o in outputs] for s in vectors])
    distances = []
    for element in range(n):
        up = np.array([s[element] > 0 for s in vectors])
        distances.append(np.abs(table[up].mean(axis=0) - table[~up].mean(axis=0)).sum() / 2)
    unseen = 2 * (1 - table.sum(axis=1).min())
    assert distance.value == pytest.approx(np.mean(distances), abs=4 * distance.error + unseen + 1e-9)


def test_gaps_name_what_is_missing() -> None:
    """Each of the paper's examples suffers from its own gap."""
    shame = gaps(NameAndShame(), 100).to_dict()
    assert (shame["elements"], shame["outputs"], shame["interference"]) == pytest.approx((0.495, 0, 0))
    nothing = gaps(AllOrNothing(0.2), 100).to_dict()
    assert (nothing["elements"], nothing["outputs"], nothing["interference"]) == pytest.approx((0, 0.4, 0))
    xor = gaps(Xor(), 100).to_dict()
    assert (xor["elements"], xor["outputs"], xor["interference"]) == pytest.approx((0, 0, 0.5))
    tight = gaps(RandomizedResponse(1.0), 100).to_dict()
    assert (tight["elements"], tight["outputs"], tight["interference"]) == (0, 0, 0)
    assert tight["epsilon_epsilon"] == 1.0
    assert tight["efficacy_epsilon"] == pytest.approx(1.0)
    assert xor["interference_epsilon"] == "inf"
    noisy = gaps(NoisyCountInSets(4, 1.0), 40, 10, trials=2000, rng=0)
    parts = noisy.to_dict()
    total = parts["efficacy"] + parts["elements"] + parts["outputs"] + parts["interference"]
    assert total == pytest.approx(parts["epsilon"])
    assert parts["efficacy_error"] > 0
    assert 0 < parts["elements_error"] < parts["efficacy_error"] + parts["average_case_error"]
    single = gaps(LocalLaplace(1.0), 1, rng=0).to_dict()
    assert single["elements"] == 0
    assert single["elements_epsilon"] == 0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 10])
def test_certain_guesses_of_count_in_sets(size: int) -> None:
    """Per set s 2^-(s-1) in one run and 2 - 2^-(s-1) adaptively, within 4 standard errors."""
    from canaria.rules import Threshold, UpTo

    mechanism, sets, trials = CountInSets(size), 50, 400
    n = sets * size
    one_run = play_many(mechanism, None, Threshold(math.inf), n, trials, rng=1)
    adaptive = play_many(mechanism, None, UpTo(n, math.inf), n, trials, mechanism.rounds(n), rng=1)
    for games, expected in (
        (one_run, certain_elements(n, size)),
        (adaptive, certain_elements(n, size, adaptive=True)),
    ):
        taken = np.array([game.evidence.tally(PERFECT_PRIVACY).taken for game in games])
        right = np.array([game.evidence.tally(PERFECT_PRIVACY).correct for game in games])
        assert (taken == right).all()
        assert taken.mean() == pytest.approx(expected, abs=4 * taken.std() / math.sqrt(trials) + 1e-9)
    assert certain_elements(10, 10) == pytest.approx(0.01953125)
    assert certain_elements(10, 10, adaptive=True) == pytest.approx(1.998, abs=1e-3)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_exposed_elements_are_counted_exactly(size: int) -> None:
    found = tightness(lambda n: CountInSets(size), [20 * size], level=1.5, trials=2000, rng=0)
    expected = exposed_elements(20 * size, size, 1.5)
    assert found.mean[0] == pytest.approx(expected, rel=0.05, abs=0.05)


def test_threshold_of_count_in_sets_is_near_log2_n() -> None:
    """S = log2(n) / 2 exposes ever more elements at any level, s = 2 log2(n) ever fewer."""
    for level in (1.0, 3.0, math.inf):
        sizes = [2**k for k in range(8, 40, 4)]
        half = [exposed_elements(n, n.bit_length() // 2, level) for n in sizes]
        assert (np.diff(half) > 0).all()
        assert half[-1] > 1e5
    double = [exposed_elements(n, 2 * (n.bit_length() - 1), 3.0) for n in (2**8, 2**16, 2**32)]
    assert (np.diff(double) < 0).all()
    found = tightness(
        lambda n: CountInSets(max(1, int(math.log2(n) / 2))), [64, 1024, 16384], math.inf, rng=0
    )
    assert found.low[0] < found.low[1] < found.low[2]


def test_clopper_pearson_is_close_to_the_accuracy() -> None:
    """Within sqrt(-ln(beta) / (2 r)) of v / r (the paper's convergence lemma, by Hoeffding)."""
    for taken, share, beta in itertools.product((10, 100, 10_000), (0.55, 0.8, 1.0), (0.05, 1e-4)):
        correct = round(share * taken)
        bound = p(lower_bound(Counts(correct, taken, taken), 0.0, 1 - beta).epsilon)
        gap = math.sqrt(-math.log(beta) / (2 * taken))
        assert correct / taken - gap <= bound + 1e-9 or bound == 0.5
        assert bound <= max(0.5, correct / taken)


@pytest.mark.parametrize(
    "mechanism", [RandomizedResponse(1.0), LocalLaplace(2.0), LocalGaussian(1.0)], ids=repr
)
def test_bounds_of_local_mechanisms_converge_to_the_efficacy(mechanism: Mechanism) -> None:
    """With all elements guessed, p^{-1}(E*_n) is approached from below as n grows."""
    limit = efficacy(mechanism, 1000).epsilon
    means = []
    for n in (100, 10_000, 400_000):
        games = play_many(mechanism, None, All(), n, 10, rng=4)
        means.append(np.mean([game.bound().epsilon for game in games]))
    assert means[0] < means[1] < means[2] < limit
    assert means[2] == pytest.approx(limit, abs=0.02)


def test_full_knowledge_is_shown_to_be_invalid() -> None:
    text = demonstrate_full_knowledge(1.0, 20, 2000, rng=0)
    assert text.startswith("INVALID METHOD")
    accused = float(text.rsplit("in ", 1)[1].split("%")[0]) / 100
    assert accused == pytest.approx(p(1.0), abs=4 * math.sqrt(0.2 / 2000))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: efficacy(Xor(), 5, 6), "k must be an integer between 1 and n = 5, got 6"),
        (lambda: efficacy(Xor(), 0), "n must be an integer of at least 1, got 0"),
        (lambda: efficacy(XorInPairs(), 5), "n must be even for elements in pairs, got 5"),
        (lambda: AllOrNothing(1.5), "p must be between 0 and 1, got 1.5"),
        (lambda: CountInSets(0), "size must be an integer of at least 1, got 0"),
        (lambda: NoisyCountInSets(2, 0.0), "sigma must be positive and finite, got 0.0"),
        (lambda: LocalLaplace(0.0), "epsilon must be positive and finite, got 0.0"),
        (lambda: LocalGaussian(-1.0), "sigma must be positive and finite, got -1.0"),
        (lambda: RandomizedResponse(-1.0), "epsilon must be at least 0, got -1.0"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
