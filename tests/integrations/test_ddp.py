"""Distributed training: two real processes over gloo."""

from pathlib import Path

import numpy as np
import pytest
from torch import multiprocessing

from tests.integrations import ddp
from tests.integrations.digits import SIGMA


def test_both_ranks_see_the_reduced_gradient(tmp_path: Path) -> None:
    """Opacus adds noise on one rank only. In the last case it adds none: conformance tells.

    False-alarm rate 1e-4 for each case.
    """
    multiprocessing.spawn(ddp.rank, (2, str(tmp_path)), nprocs=2)
    for case in ddp.CASES:
        first, second = (dict(np.load(tmp_path / f"{'-'.join(case)}-{this}.npz")) for this in range(2))
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
