"""Theorem 33: canaries that no real row meets are audited under any sampler, by the likelihood of its law."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from canaria import InputError, audit_scores
from canaria._core.arrays import Bits, Floats
from canaria.integrations.opacus import _accumulator as in_torch
from canaria.training import Dirac, Findings, Recording
from canaria.training.canaries.designs import hidden_bits
from canaria.training.canaries.sampling import Sampling, Trials
from canaria.training.canaries.witnesses import layout
from canaria.training.conformance.draws import Batches, contradictions, part_of
from canaria.training.conformance.sums import Stated, of_dirac
from canaria.training.likelihood.accumulator import Accumulator, table_of

POISSON, SHUFFLED, FIXED = Sampling(), Sampling("shuffled"), Sampling("fixed-size")
TWICE = Sampling("poisson", accumulated=2)
KINDS = [POISSON, SHUFFLED, FIXED, TWICE, Sampling("shuffled", accumulated=2)]


def _laws(sampling: Sampling, steps: int, rate: float) -> list[tuple[float, tuple[int, ...]]]:
    """Every way in which a row may take part, with its probability."""
    each = sampling.accumulated
    if sampling.kind == "shuffled":
        length = sampling.steps_of_a_pass(rate)
        places = itertools.product(range(length), repeat=-(-steps // length))
        found = []
        for chosen in places:
            taking = [0] * (length * len(chosen))
            for number, place in enumerate(chosen):
                taking[number * length + place] = 1
            found.append((length ** -len(chosen), tuple(taking[:steps])))
        return found
    one = [float(stats.binom.pmf(j, each, rate)) for j in range(each + 1)]
    return [
        (math.prod(one[j] for j in taking), taking)
        for taking in itertools.product(range(each + 1), repeat=steps)
    ]


def _specified(sampling: Sampling, rate: float, count: int = 5, most: int = 1) -> Accumulator:
    laid = layout([(8 * count,)], count, np.random.default_rng(0))
    design = Dirac(count * most, most)
    return Accumulator.of(design, laid.layers, laid.roles, sample_rate=rate, sampling=sampling)


@pytest.mark.parametrize("sampling", KINDS, ids=lambda one: one.words)
@pytest.mark.parametrize("steps", [1, 4, 6])
def test_likelihoods_are_those_of_all_patterns(sampling: Sampling, steps: int) -> None:
    """Passes that are whole, and one that is not; the noise changes from step to step."""
    rate = 0.25
    rng = np.random.default_rng(steps)
    seen, sigmas = rng.normal(size=(steps, 5)), rng.uniform(0.5, 2.0, steps)
    expected = [
        special.logsumexp(
            [
                math.log(chance) + float(np.sum((y * taking - np.square(taking) / 2) / sigmas**2))
                for chance, taking in _laws(sampling, steps, rate)
            ]
        )
        for y in seen.T
    ]
    found = _specified(sampling, rate).likelihoods(seen, sigmas, [1.0])
    assert found[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("sampling", KINDS, ids=lambda one: one.words)
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("steps", [7, 16, 45])
def test_in_torch_it_is_the_specification(sampling: Sampling, most: int, steps: int) -> None:
    if sampling.kind == "shuffled" and most > 1:
        return
    specified = _specified(sampling, 0.1, most=most)
    rng = np.random.default_rng(0)
    witnesses, sizes = len(specified.roles.index), specified.roles.sizes
    seen, noise = rng.normal(size=(steps, 5)), rng.normal(size=(steps, witnesses))
    whole = rng.normal(size=(steps, len(sizes)))
    kept = in_torch.Accumulator(specified, torch.device("cpu"))
    for step in range(steps):
        read, totals = kept.next_row()
        read.copy_(torch.tensor(-np.concatenate([seen[step], noise[step]])))
        totals.copy_(torch.tensor(-whole[step]))
        kept.add(None, clip_norm=1.0, stated=1.5, totalled=True)
        if step == 4:
            again = in_torch.Accumulator(specified, torch.device("cpu"))
            again.load_state_dict(kept.state_dict())
            kept = again
    expected = specified.totals(seen, noise, whole, np.full(steps, 1.5))
    assert kept.totals().table == pytest.approx(expected.table, abs=1e-4)
    assert kept.totals().table == pytest.approx(kept.totals().table)


def _taking(sampling: Sampling, count: int, steps: int, rate: float, rng: np.random.Generator) -> Floats:
    if sampling.kind != "shuffled":
        return rng.binomial(sampling.accumulated, rate, (steps, count)).astype(np.float64)
    length = sampling.steps_of_a_pass(rate)
    taking = np.zeros((-(-steps // length) * length, count))
    for start in range(0, len(taking), length):
        taking[start + rng.integers(0, length, count), np.arange(count)] = 1
    return taking[:steps]


def _recorded(sampling: Sampling, seed: int, done: Sampling | None = None, steps: int = 100) -> Recording:
    """1,000 canaries, rate 0.1, noise 1; the sampler does what `done` says."""
    rng = np.random.default_rng(seed)
    bits: Bits = hidden_bits(1000, seed)
    taking = _taking(done or sampling, 1000, steps, 0.1, rng)
    seen = taking * (bits > 0) + rng.normal(size=taking.shape)
    specified = _specified(sampling, 0.1, 1000)
    return Recording(
        design=Dirac(1000),
        bits=bits,
        sums=seen.sum(axis=0),
        table=table_of(specified.likelihoods(seen, np.ones(steps), [1.0])),
        steps=steps,
        sample_rate=0.1,
        noise_multiplier=1.0,
        injection="head",
        seed=seed,
        sampling=sampling,
    )


@pytest.mark.parametrize("sampling", KINDS, ids=lambda one: one.words)
@pytest.mark.parametrize("steps", [100, 37])
def test_sums_of_correct_trainings_conform(sampling: Sampling, steps: int) -> None:
    """Kolmogorov and Smirnov at 1e-4, over 80 simulated runs."""
    found = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        included = rng.integers(0, 2, 400)
        sums = (_taking(sampling, 400, steps, 0.1, rng) * included).sum(axis=0) + rng.normal(
            0, steps**0.5, 400
        )
        found.append(
            of_dirac(
                sums, included, Stated(steps=steps, sample_rate=0.1, noise_multiplier=1.0), sampling
            ).p_value
        )
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4
    assert min(found) > 1e-5


def _whole(sampling: Sampling, seed: int, done: Sampling | None = None) -> Recording:
    """Canaries among 1,400 rows that are drawn as `done` says, in 100 steps; sums and draws are of one run."""
    does, rng, rows = done or sampling, np.random.default_rng(seed), 1400
    drawn, taking = Batches(rows), np.zeros((100, 1000))
    for step in range(100):
        for number in range(step * does.accumulated, (step + 1) * does.accumulated):
            if number % 10 == 0:
                this, order = drawn.begin(), rng.permutation(rows)
            batch = {
                "poisson": lambda: np.flatnonzero(rng.random(rows) < 0.1),
                "fixed-size": lambda: rng.permutation(rows)[: rows // 10],
                "shuffled": lambda number=number, order=order: np.array_split(order, 10)[number % 10],
            }[does.kind]()
            drawn.add(batch.tolist(), this)
            if number % 10 == 9:
                drawn.end(this)
            np.add.at(taking[step], batch[batch < 1000], 1)
    bits = hidden_bits(1000, seed)
    seen = taking * (bits > 0) + rng.normal(size=taking.shape)
    return Recording(
        design=Dirac(1000),
        bits=bits,
        sums=seen.sum(axis=0),
        table=None,
        steps=100,
        sample_rate=0.1,
        noise_multiplier=1.0,
        injection="head",
        seed=seed,
        sampling=sampling,
        drawn=drawn.drawn(),
        findings=Findings(contradictions=contradictions(drawn.drawn(), sampling)),
    )


@pytest.mark.parametrize("runs", [10, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "sampling", [*KINDS[:3], Sampling("poisson", accumulated=4), *KINDS[4:]], ids=lambda one: one.words
)
def test_whole_audits_of_correct_samplers_accuse_nobody(sampling: Sampling, runs: int) -> None:
    """At 1e-4, three or more of 1,000 correct runs would be accused with probability 2e-4."""
    found = [_whole(sampling, seed) for seed in range(runs)]
    assert not any(one.contradictions for one in found)
    assert sum(one.conformance().p_value <= 1e-4 for one in found) <= 2 * (runs >= 1000)


@pytest.mark.parametrize("done", [SHUFFLED, Sampling("poisson", accumulated=4)], ids=lambda one: one.words)
def test_the_wrong_sampler_is_found_in_one_run(done: Sampling) -> None:
    assert _whole(POISSON, 0, done).conformance().p_value < 1e-6


def test_the_right_likelihood_shows_more() -> None:
    """Of shuffled batches scored as what they are, and as Poisson's."""

    def mean(stated: Sampling) -> float:
        found = [_recorded(stated, seed, SHUFFLED).bound(1e-5).epsilon for seed in range(6)]
        return float(np.mean(found))

    assert mean(SHUFFLED) > mean(POISSON)


def _true_epsilon(batches: int, sigma: float, delta: float) -> float:
    """Of one shuffled pass, by 50,000 values of the likelihood ratio under both hypotheses."""
    rng = np.random.default_rng(1)
    without = sigma * rng.normal(size=(50_000, batches))
    loss = special.logsumexp((without - 0.5) / sigma**2, axis=1) - math.log(batches)
    without[:, 0] += 1
    gain = special.logsumexp((without - 0.5) / sigma**2, axis=1) - math.log(batches)
    for epsilon in np.arange(0.0, 12.0, 0.02):
        one = np.maximum(0, -np.expm1(epsilon - gain)).mean()
        other = np.maximum(0, -np.expm1(epsilon + loss)).mean()
        if max(one, other) <= delta:
            return float(epsilon)
    return math.inf


def _claimed(batches: int, sigma: float, delta: float, *, subtracted: bool, audits: int) -> Floats:
    """Bounds of one shuffled pass; `subtracted` says that the guesser knows who took part."""
    rng, found = np.random.default_rng(2), []
    for _ in range(audits):
        bits, place = rng.integers(0, 2, 1000), rng.integers(0, batches, 1000)
        seen = sigma * rng.normal(size=(1000, batches))
        seen[np.arange(1000), place] += bits
        scores = special.logsumexp((seen - 0.5) / sigma**2, axis=1)
        if subtracted:
            scores = seen[np.arange(1000), place]
        found.append(audit_scores(scores, bits, delta, rng=rng).epsilon)
    return np.array(found)


@pytest.mark.parametrize(
    ("batches", "sigma", "delta"),
    [
        (20, 0.7, 1e-3),
        pytest.param(100, 0.5, 1e-2, marks=pytest.mark.full),
        pytest.param(3, 1.0, 1e-4, marks=pytest.mark.full),
    ],
)
def test_shuffled_batches_are_never_over_claimed(batches: int, sigma: float, delta: float) -> None:
    """In 60 audits none is above the truth; 7 or more would be, with probability 0.04, if 5% were."""
    truth = _true_epsilon(batches, sigma, delta)
    assert np.mean(_claimed(batches, sigma, delta, subtracted=False, audits=60) > truth) <= 0.1


def test_what_subtracting_would_do() -> None:
    """Who took part tells where the canary was, and most audits claim more than is true."""
    truth = _true_epsilon(100, 0.5, 1e-2)
    assert np.mean(_claimed(100, 0.5, 1e-2, subtracted=True, audits=10) > truth) > 0.5


def _drawn(batches: list[np.ndarray], rows: int, length: int = 10) -> Batches:
    seen = Batches(rows)
    for number, batch in enumerate(batches):
        if number % length == 0:
            this = seen.begin()
        seen.add(batch.tolist(), this)
        if number % length == length - 1:
            seen.end(this)
    return seen


def _batches(kind: str, seed: int, steps: int = 100, rows: int = 400) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "poisson":
        return [np.flatnonzero(rng.random(rows) < 0.1) for _ in range(steps)]
    if kind == "fixed-size":
        return [rng.choice(rows, rows // 10, replace=False) for _ in range(steps)]
    if kind == "two orders in turn":
        return [*np.split(rng.permutation(rows), 10), *np.split(rng.permutation(rows), 10)] * (steps // 20)
    if kind == "not shuffled again":
        return np.split(rng.permutation(rows), 10) * (steps // 10)
    return [one for _ in range(steps // 10) for one in np.split(rng.permutation(rows), 10)]


@pytest.mark.parametrize("sampling", [POISSON, SHUFFLED, FIXED], ids=lambda one: one.words)
def test_draws_as_stated_conform(sampling: Sampling) -> None:
    found = []
    for seed in range(100):
        drawn = _drawn(_batches(sampling.kind, seed), 400).drawn()
        assert contradictions(drawn, sampling) == ()
        part = part_of(drawn, 0.1, np.random.default_rng(seed), sampling)
        assert part is not None
        found.append(part.p_value)
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4
    assert min(found) > 1e-5


@pytest.mark.parametrize(
    ("stated", "done", "said"),
    [
        (POISSON, "shuffled", "they look shuffled, 10 batches to a pass"),
        (POISSON, "fixed-size", "the sizes of batches vary too little"),
        (FIXED, "shuffled", "they look shuffled, 10 batches to a pass"),
        (SHUFFLED, "not shuffled again", "in the same batch of two passes in a row"),
        (SHUFFLED, "two orders in turn", "in the same batch of two passes 2 apart"),
    ],
)
def test_other_draws_are_found(stated: Sampling, done: str, said: str) -> None:
    drawn = _drawn(_batches(done, 0), 400).drawn()
    part = part_of(drawn, 0.1, np.random.default_rng(0), stated)
    assert part is not None
    assert part.p_value < 1e-6
    assert said in part.cause


@pytest.mark.parametrize(
    ("stated", "done", "said"),
    [
        (FIXED, "poisson", "batches of one size are stated, but they had"),
        (SHUFFLED, "poisson", "a row was drawn twice in one pass"),
        (SHUFFLED, "fixed-size", "a row was drawn twice in one pass"),
    ],
)
def test_what_cannot_be_is_a_contradiction(stated: Sampling, done: str, said: str) -> None:
    (found,) = contradictions(_drawn(_batches(done, 0), 400).drawn(), stated)
    assert said in found


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="sampling must be poisson, shuffled or fixed-size, got 'poison'"):
        Sampling("poison")
    with pytest.raises(InputError, match="accumulated must be"):
        Sampling(accumulated=0)
    with pytest.raises(InputError, match="for Poisson sampling, not for shuffled batches"):
        _recorded(SHUFFLED, 0).family()
    assert of_dirac(
        np.zeros(10), np.arange(10) % 2, Stated(steps=10, sample_rate=0.1, noise_multiplier=1.0), SHUFFLED
    ).weight == pytest.approx(0)


@pytest.mark.parametrize("length", [2, 3, 10])
def test_few_batches_to_a_pass_conform_too(length: int) -> None:
    """The overlaps of a pass determine each other; they are taken together. 300 runs, at 1e-4."""
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        batches = [one for _ in range(6) for one in np.array_split(rng.permutation(300), length)]
        part = part_of(_drawn(batches, 300, length).drawn(), 1 / length, rng, SHUFFLED)
        assert part is not None
        found.append(part.p_value)
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4


@pytest.mark.parametrize(
    ("rows", "size", "passes"), [(1000, 1, 2), (200, 20, 2), (1000, 8, 5), (40, 20, 3), (300, 256, 4)]
)
def test_few_passes_of_a_fresh_shuffle_are_not_accused(rows: int, size: int, passes: int) -> None:
    """Numbers that are just what is expected accuse nobody; 100 runs, at 1e-4."""
    for seed in range(100):
        rng, drawn = np.random.default_rng(seed), Batches(rows)
        for _ in range(passes):
            this, order = drawn.begin(), rng.permutation(rows)
            for start in range(0, rows, size):
                drawn.add(order[start : start + size].tolist(), this)
            drawn.end(this)
        stated = Sampling("shuffled", batches=-(-rows // size))
        part = part_of(drawn.drawn(), size / rows, rng, stated)
        assert part is None or part.p_value > 1e-4


def test_rows_that_are_dropped_take_part_less() -> None:
    dropped = Sampling("shuffled", batches=3)
    assert dropped.participations(2, 7, 0.3) == (Trials(4, pytest.approx(0.9)), Trials(2, pytest.approx(0.3)))
    with pytest.raises(InputError, match="10 batches of a pass cannot be divided into steps of 4"):
        Sampling("shuffled", accumulated=4, batches=10)
