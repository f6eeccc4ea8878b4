"""Training over several processes, DDP and FSDP2: two real processes over gloo."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from torch import multiprocessing

from tests.integrations import ddp, together
from tests.integrations.digits import SIGMA


def left_by_two_ranks(part: str, paths: pytest.TempPathFactory) -> Path:
    """What two ranks have seen in one part of the trainings."""
    made = paths.mktemp(part)
    multiprocessing.spawn(ddp.rank, (2, str(made), part), nprocs=2)
    return made


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return left_by_two_ranks("cases", tmp_path_factory)


@pytest.fixture(scope="module")
def samplers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return left_by_two_ranks("samplers", tmp_path_factory)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return left_by_two_ranks("together", tmp_path_factory)


def test_both_ranks_see_the_reduced_gradient(cases: Path) -> None:
    """Opacus adds noise on one rank only. In the last case it adds none: conformance tells.

    False-alarm rate 1e-4 for each case.
    """
    for case in ddp.CASES[:5]:
        first, second = (dict(np.load(cases / f"{'-'.join(case)}-{this}.npz")) for this in range(2))
        assert (first["bits"] == second["bits"]).all()
        assert np.allclose(first["sums"], second["sums"], atol=1e-3)
        assert np.allclose(first["weights"], second["weights"])
        p_value, noise, weight = first["found"]
        assert weight == pytest.approx(1, abs=0.5)
        if case[2] == "noiseless":
            assert p_value < 1e-6
            assert noise < 0.2
        else:
            assert p_value >= 1e-4
            assert noise == pytest.approx(SIGMA, rel=0.15)


def test_what_one_rank_sees_for_certain_all_report(cases: Path) -> None:
    """The other clips to twice the norm."""
    for this in range(2):
        (said,) = np.load(cases / f"rows-hooks-loose-{this}.npz")["contradictions"]
        assert "clip norms" in said


def test_an_audit_that_ends_on_one_rank_ends_on_all(cases: Path) -> None:
    """And training goes on: no rank waits for sums that the other no longer sends."""
    first, second = (dict(np.load(cases / f"sum-hooks-ended-{this}.npz")) for this in range(2))
    assert np.allclose(first["weights"], second["weights"])
    assert "after step 10: the audit of another process has ended" in str(first["ended"])
    assert "after step 10: what only this rank sees" in str(second["ended"])
    assert not any("ranks had" in str(said) for one in (first, second) for said in one["contradictions"])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "same seed",
            r"^ranks 0 and 1 drew the same positions in (\d+) of \1 comparisons: their loaders share a seed, "
            "so rows are not drawn independently and the accountant's ε does not hold; "
            "seed each rank's loader differently$",
        ),
        ("same seed, uneven rows", r"^ranks 0 and 1 drew the same positions in \d+ of \d+ comparisons: "),
        ("whole data", "^2 ranks draw from the same rows: a row that all of them draw weighs 2 clip norms"),
        ("whole data, head", "^2 ranks draw from the same rows: "),
        ("overlap", r"^\d+ of the rows that were compared are in the data of two ranks: "),
        ("own bias", "^ranks had different gradients in step 1, where they should be the same: "),
        ("own clip norm", "^ranks had different clip norms in step 1, where they should be the same: "),
        ("own weights", "^ranks had different weights in step 2, where they should be the same: "),
    ],
)
def test_samplers_that_share_a_seed_or_rows_are_reported_by_all_ranks(
    samplers: Path, how: str, said: str
) -> None:
    for this in range(2):
        assert re.search(said, np.load(samplers / f"{how}-{this}.npz")["contradictions"][0])


def test_samplers_of_ranks_are_tested_and_correct_ones_not_accused(samplers: Path) -> None:
    """10 trainings, half of them with an odd number of rows; false-alarm rate 1e-3."""
    p_values = []
    for seed in range(ddp.SEEDS):
        for this in range(2):
            found = np.load(samplers / f"correct {seed}-{this}.npz")
            assert found["contradictions"].tolist() == []
            assert str(found["fact"]).startswith(f"that of rank {this}, of 2; ")
            assert str(found["untested"]) == ""
            p_values.append(float(found["sampling"]))
    assert min(p_values) >= 1e-4
    assert stats.kstest(p_values, "uniform").pvalue >= 1e-3


@pytest.mark.parametrize(
    ("how", "not_tested"),
    [("split by hand", ""), ("subclass", "of another class"), ("small batches", "leaves out empty batches")],
)
def test_unusual_samplers_are_not_accused_and_reports_say_what_was_not_tested(
    samplers: Path, how: str, not_tested: str
) -> None:
    for this in range(2):
        found = np.load(samplers / f"{how}-{this}.npz")
        assert found["contradictions"].tolist() == []
        assert not_tested in str(found["untested"])
        assert bool(str(found["untested"])) == bool(not_tested)


@pytest.mark.parametrize("way", together.WAYS)
def test_two_processes_see_what_one_sees(joined: Path, way: str) -> None:
    """With the same batches and the same noise, sums and weights agree; false-alarm rate 1e-3."""
    audit, _, weights = together.train(way, batches=together.joined(joined, way))
    record = audit.recording()
    for this in range(2):
        seen = dict(np.load(joined / f"{way}-{this}.npz"))
        assert (seen["bits"] == record.bits).all()
        assert np.abs(seen["weights"] - weights).max() <= 1e-5
        assert np.abs(seen["sums"] - record.sums).max() <= 1e-5
        assert seen["p_value"] >= 1e-3


def test_sharded_processes_that_share_a_seed_are_reported(joined: Path) -> None:
    for this in range(2):
        (said,) = np.load(joined / f"fsdpsame seed-{this}.npz")["contradictions"]
        assert said.startswith("ranks 0 and 1 drew the same positions")
        assert np.load(joined / f"fsdp-{this}.npz")["contradictions"].tolist() == []


def test_half_of_the_sharded_noise_is_found(joined: Path) -> None:
    for this in range(2):
        assert np.load(joined / f"fsdphalved-{this}.npz")["p_value"] <= 1e-6


@pytest.mark.full
def test_sharded_trainings_are_not_accused(tmp_path: Path) -> None:
    """20 seeds: p-values are uniform, bounds below the claim; false-alarm rate 3e-3.

    Both ranks find noise that is the same in all shards.
    """
    multiprocessing.spawn(together.many_seeds, (2, str(tmp_path), 20), nprocs=2)
    p_values, bounds = np.load(tmp_path / "found.npy").T
    assert stats.kstest(p_values, "uniform").pvalue >= 1e-3
    assert p_values.min() >= 1e-4
    assert bounds.max() <= together.claimed()
    for this in range(2):
        alike = np.load(tmp_path / f"alike-{this}.npz")
        assert alike["p_value"] <= 1e-6
        assert "used twice" in str(alike["answer"])
