"""Training over several processes, DDP and FSDP2: two real processes over gloo."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from torch import multiprocessing

from tests.integrations import ddp, together
from tests.integrations.digits import SIGMA


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks have seen in all cases."""
    made = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(ddp.rank, (2, str(made)), nprocs=2)
    return made


def test_both_ranks_see_the_reduced_gradient(folder: Path) -> None:
    """Opacus adds noise on one rank only. In the last case it adds none: conformance tells.

    False-alarm rate 1e-4 for each case.
    """
    for case in ddp.CASES[:5]:
        first, second = (dict(np.load(folder / f"{'-'.join(case)}-{this}.npz")) for this in range(2))
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


def test_what_one_rank_sees_for_certain_all_report(folder: Path) -> None:
    """The other clips to twice the norm."""
    for this in range(2):
        (said,) = np.load(folder / f"rows-hooks-loose-{this}.npz")["contradictions"]
        assert "clip norms" in said


def test_an_audit_that_ends_on_one_rank_ends_on_all(folder: Path) -> None:
    """And training goes on: no rank waits for sums that the other no longer sends."""
    first, second = (dict(np.load(folder / f"sum-hooks-ended-{this}.npz")) for this in range(2))
    assert np.allclose(first["weights"], second["weights"])
    assert "after step 10: the audit of another process has ended" in str(first["ended"])
    assert "after step 10: what only this rank sees" in str(second["ended"])


@pytest.mark.parametrize("way", together.WAYS)
def test_two_processes_see_what_one_sees(folder: Path, way: str) -> None:
    """With the same batches and the same noise, sums and weights agree; false-alarm rate 1e-3."""
    audit, _, weights = together.train(way, batches=together.joined(folder, way))
    record = audit.recording()
    for this in range(2):
        seen = dict(np.load(folder / f"{way}-{this}.npz"))
        assert (seen["bits"] == record.bits).all()
        assert np.abs(seen["weights"] - weights).max() <= 1e-5
        assert np.abs(seen["sums"] - record.sums).max() <= 1e-5
        assert seen["p_value"] >= 1e-3


def test_half_of_the_sharded_noise_is_found(folder: Path) -> None:
    for this in range(2):
        assert np.load(folder / f"fsdphalved-{this}.npz")["p_value"] <= 1e-6


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
        assert "used twice" in str(alike["clearest"])
