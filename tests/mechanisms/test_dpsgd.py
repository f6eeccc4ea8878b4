"""DP-SGD: pinned losses, brute force, the naive Algorithm 3, the paper's numbers at reduced size."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from canaria import InputError, play
from canaria.claims.accounting import dpsgd_epsilon, dpsgd_noise_multiplier
from canaria.game import play_many
from canaria.mechanisms import SubsampledGaussian, algorithm_3, log_likelihoods_of
from canaria.mechanisms._sets import count_loss
from canaria.rules import Bet, Ranked, Soft, Tails
from canaria.theory import efficacy

SEEN = np.array([0.3, 1.7, -0.4])


def test_pinned_likelihoods_and_losses() -> None:
    """The values of theory section 11."""
    logs = log_likelihoods_of(SEEN, 3, 0.3, 1.2)
    assert logs == pytest.approx([-4.394058, -4.254374, -4.301651, -4.475438], abs=1e-6)
    pinned = {(0, 2): -0.0303084, (1, 1): -0.107041, (1, 0): -0.0472772, (0, 0): 0.139684}
    for (included, hidden), expected in pinned.items():
        known = [1] * included + [0] * (hidden + 1) + [-1] * (2 - included - hidden)
        losses = count_loss(logs[None, None], np.array([known], dtype=np.int8), 3)
        assert losses[0, included] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "dimension"), [(6, 3), (7, 3), (2, 5), (4, 4), (5, 1)])
@pytest.mark.parametrize("reveal", [0.0, 0.5])
def test_loss_is_brute_force_over_all_bits(n: int, dimension: int, reveal: float) -> None:
    """Also with n below d and n not a multiple of d, before and after bits are revealed."""
    steps, rate, sigma = 3, 0.4, 0.9
    rng = np.random.default_rng(n)
    mechanism = SubsampledGaussian(dimension=dimension, steps=steps, sample_rate=rate, noise_multiplier=sigma)
    coordinates, most = min(dimension, n), -(-n // dimension)
    released = rng.normal(1.0, 1.0, (steps, coordinates))
    logs = log_likelihoods_of(released, most, rate, sigma)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), n)
    known = (bits * (rng.random(n) < reveal)).astype(np.int8)
    losses = mechanism.loss(logs[None], known[None])[0]
    assert (losses[known != 0] == 0).all()

    def likelihood(s: tuple[int, ...]) -> float:
        total = 0.0
        for c, t in itertools.product(range(coordinates), range(steps)):
            m = sum(s[i] > 0 for i in range(n) if i % dimension == c)
            weights = stats.binom.pmf(np.arange(m + 1), m, rate)
            total += math.log(weights @ stats.norm.pdf(released[t, c], np.arange(m + 1), sigma))
        return total

    agreeing = [
        s
        for s in itertools.product((-1, 1), repeat=n)
        if all(k in (0, b) for k, b in zip(known, s, strict=True))
    ]
    table = {s: likelihood(s) for s in agreeing}
    for i in np.flatnonzero(known == 0):
        sides = [special.logsumexp([table[s] for s in agreeing if s[i] == sign]) for sign in (1, -1)]
        assert losses[i] == pytest.approx(sides[0] - sides[1], abs=1e-9)


@pytest.mark.parametrize(
    ("steps", "rate", "sigma"), [(1, 0.05, 0.2), (5, 0.3, 1.0), (40, 0.1, 2.0), (3, 1.0, 0.7)]
)
@pytest.mark.parametrize("trials", [3, 3000])
def test_loss_of_the_sum_is_that_of_its_law(steps: int, rate: float, sigma: float, trials: int) -> None:
    """Directly for few sums, by spline for many; brute force over the counts of a coordinate of 3."""
    mechanism = SubsampledGaussian(
        dimension=2, steps=steps, sample_rate=rate, noise_multiplier=sigma, score="sum"
    )
    rng = np.random.default_rng(4)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), (trials, 6))
    sums = mechanism.sample(bits, rng)
    losses = mechanism.loss(sums, np.zeros_like(bits))
    scale = math.sqrt(steps) * sigma
    for trial, element in itertools.product(range(3), range(6)):
        y, sides = sums[trial, element % 2], []
        for own in (1, 0):
            laws = [
                stats.binom.pmf(np.arange(steps * (k + own) + 1), steps * (k + own), rate) for k in range(3)
            ]
            density = [law @ stats.norm.pdf(y, np.arange(len(law)), scale) for law in laws]
            sides.append(np.array([0.25, 0.5, 0.25]) @ density)
        assert losses[trial, element] == pytest.approx(math.log(sides[0] / sides[1]), abs=1e-6)


def test_at_one_step_sum_and_likelihood_are_the_same() -> None:
    """The optimum is not exceeded: T = 1, q = 0.05, sigma = 0.2."""
    shown = [
        efficacy(
            SubsampledGaussian(dimension=1, steps=1, sample_rate=0.05, noise_multiplier=0.2, score=score),
            1,
            trials=40_000,
            rng=0,
        )
        for score in ("sum", "likelihood")
    ]
    assert shown[0].value == pytest.approx(shown[1].value, abs=4 * (shown[0].error + shown[1].error))


@pytest.mark.parametrize("score", ["likelihood", "sum"])
def test_same_law_as_the_naive_algorithm(score: str) -> None:
    """Sums or log-likelihood ratios against Algorithm 3 with T x n draws (KS, false alarm 1e-4)."""
    dimension, n, steps, rate, sigma = 4, 10, 5, 0.3, 0.7
    rng = np.random.default_rng(3)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), n)
    gradients = np.zeros((n, dimension))
    gradients[np.arange(n), np.arange(n) % dimension] = 10.0 * (bits > 0)
    naive = np.stack([algorithm_3(gradients, steps, rate, sigma, rng) for _ in range(4000)], axis=1)
    ours = SubsampledGaussian(
        dimension=dimension, steps=steps, sample_rate=rate, noise_multiplier=sigma, score=score
    ).sample(np.tile(bits, (4000, 1)), rng)
    for coordinate in range(dimension):
        if score == "sum":
            expected, found = naive[:, :, coordinate].sum(axis=0), ours[:, coordinate]
        else:
            logs = log_likelihoods_of(naive[:, :, coordinate], 3, rate, sigma)
            expected, found = logs[:, 2] - logs[:, 0], ours[:, coordinate, 2] - ours[:, coordinate, 0]
        assert stats.ks_2samp(expected, found).pvalue > 1e-4


def test_paper_bounds_at_one_and_eight_elements_per_coordinate() -> None:
    """80 runs; many-run means 0.484 and 0.625, met within 4 standard errors; then the fall."""
    mechanism = SubsampledGaussian(
        dimension=1000,
        steps=100,
        sample_rate=0.1,
        noise_multiplier=dpsgd_noise_multiplier(2.0, 1e-5, 100, 0.1),
        score="sum",
    )
    means = {}
    for n, expected in ((1000, 0.484), (8000, 0.625), (64_000, None)):
        bounds = [g.bound(1e-5).epsilon for g in play_many(mechanism, None, Tails(100), n, 80, rng=1)]
        means[n] = np.mean(bounds)
        if expected:
            assert means[n] == pytest.approx(expected, abs=4 * np.std(bounds) / math.sqrt(80))
    assert means[64_000] < means[8000] - 0.1


@pytest.mark.full
def test_ahead_of_the_paper() -> None:
    """Eight per coordinate, weighted likelihood: pure at least 0.70, at delta 1e-5 at least 0.64 (20 runs)."""
    mechanism = SubsampledGaussian(
        dimension=1000,
        steps=100,
        sample_rate=0.1,
        noise_multiplier=dpsgd_noise_multiplier(2.0, 1e-5, 100, 0.1),
    )
    games = play_many(mechanism, None, Soft(), 8000, 20, rng=2)
    assert np.mean([game.bound().epsilon for game in games]) >= 0.70
    assert np.mean([game.bound(1e-5).epsilon for game in games]) >= 0.64


def test_likelihood_beats_the_sum_at_small_sampling_rates() -> None:
    """Epsilon = 8, T = 1000, q = 0.01, 1,000 canaries, ranking: at least 1.4 where the sum gives 0.65."""
    sigma = dpsgd_noise_multiplier(8.0, 1e-5, 1000, 0.01)
    found = {}
    for score in ("likelihood", "sum"):
        games = play_many(
            SubsampledGaussian(
                dimension=1000, steps=1000, sample_rate=0.01, noise_multiplier=sigma, score=score
            ),
            None,
            Ranked(),
            1000,
            10,
            rng=3,
        )
        found[score] = np.mean([game.bound().epsilon for game in games])
    assert found["likelihood"] >= 1.4
    assert 0.35 <= found["sum"] <= 0.95


def test_adaptive_is_no_worse_with_the_same_evidence() -> None:
    """Bets on the same runs, T = 1, q = 1: adaptive above one-run for 5 and more per coordinate."""
    mechanism = SubsampledGaussian(
        dimension=500, steps=1, sample_rate=1.0, noise_multiplier=dpsgd_noise_multiplier(2.0, 1e-5, 1, 1.0)
    )
    for per_coordinate in (5, 10):
        n = 500 * per_coordinate
        one_run = [g.bound().epsilon for g in play_many(mechanism, None, Bet(), n, 20, rng=4)]
        adaptive = [
            g.bound().epsilon for g in play_many(mechanism, None, Bet(), n, 20, mechanism.rounds(n), rng=4)
        ]
        assert np.mean(adaptive) > np.mean(one_run)


def test_rounds_reveal_one_element_of_every_coordinate() -> None:
    assert [
        block.tolist()
        for block in SubsampledGaussian(dimension=3, steps=1, sample_rate=1.0, noise_multiplier=1.0).rounds(7)
    ] == [[0, 1, 2], [3, 4, 5], [6]]


def test_accountants() -> None:
    """Sigma = 2.42 by RDP; the same noise by PLD: 1.81; calibration inverts both."""
    sigma = dpsgd_noise_multiplier(2.0, 1e-5, 100, 0.1)
    assert sigma == pytest.approx(2.4224, abs=1e-3)
    assert dpsgd_epsilon(sigma, 1e-5, 100, 0.1) == pytest.approx(2.0, abs=1e-4)
    assert dpsgd_epsilon(sigma, 1e-5, 100, 0.1) <= 2.0
    assert dpsgd_epsilon(sigma, 1e-5, 100, 0.1, "pld") == pytest.approx(1.81, abs=0.01)
    tight = dpsgd_noise_multiplier(2.0, 1e-5, 1, 1.0, "pld")
    assert dpsgd_epsilon(tight, 1e-5, 1, 1.0, "pld") == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: SubsampledGaussian(dimension=10, steps=1, sample_rate=0.0, noise_multiplier=1.0),
            "sample_rate must be above 0 and at most 1, got 0.0",
        ),
        (
            lambda: SubsampledGaussian(dimension=10, steps=1, sample_rate=1.5, noise_multiplier=1.0),
            "sample_rate must be above 0 and at most 1, got 1.5",
        ),
        (
            lambda: SubsampledGaussian(dimension=10, steps=1, sample_rate=0.5, noise_multiplier=0.0),
            "noise_multiplier must be positive and finite, got 0.0",
        ),
        (
            lambda: SubsampledGaussian(dimension=0, steps=1, sample_rate=0.5, noise_multiplier=1.0),
            "dimension must be an integer of at least 1, got 0",
        ),
        (
            lambda: SubsampledGaussian(
                dimension=10, steps=1, sample_rate=0.5, noise_multiplier=1.0, score="best"
            ),
            "score must be 'likelihood' or 'sum', got 'best'",
        ),
        (lambda: dpsgd_noise_multiplier(0.0, 1e-5, 1, 1.0), "epsilon must be positive and finite, got 0.0"),
        (
            lambda: dpsgd_noise_multiplier(1e-9, 1e-5, 1000, 1.0),
            "epsilon 1e-09 cannot be reached by any noise",
        ),
        (lambda: dpsgd_noise_multiplier(1.0, 0.0, 1, 1.0), "delta must be strictly between 0 and 1, got 0.0"),
        (lambda: dpsgd_epsilon(0.0, 1e-5, 1, 1.0), "noise_multiplier must be positive, got 0.0"),
        (lambda: dpsgd_epsilon(1.0, 1e-5, 1, 1.0, "mine"), "accountant must be 'rdp' or 'pld', got 'mine'"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


def test_many_elements_under_little_noise_have_finite_losses() -> None:
    """A sum near 64 is all but impossible for few included: e^-12,800 is no zero here."""
    mechanism = SubsampledGaussian(dimension=10, steps=1, sample_rate=1.0, noise_multiplier=0.4)
    game = play(mechanism, n=640, rng=0)
    losses = mechanism.loss(game.output[None], np.zeros((1, 640), dtype=np.int8))
    assert np.isfinite(losses).all()
    exact = -0.5 * ((64.0 - np.arange(65)) / 0.4) ** 2 - math.log(0.4 * math.sqrt(2 * math.pi))
    found = log_likelihoods_of(np.array([64.0]), 64, 1.0, 0.4)
    np.testing.assert_allclose(found, exact)
