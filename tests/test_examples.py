"""The examples run as they stand, and say what they should."""

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.scripts import EXAMPLES, load


def run(name: str, *options: str) -> str:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / name), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "options", [("--injection", "rows"), ("--injection", "sum", "--per-coordinate", "4", "--adaptive")]
)
def test_digits(options: tuple[str, ...]) -> None:
    shown = run("opacus_digits.py", *options)
    assert "the claim ε = 2 is not refuted" in shown
    assert "consistent with a correct implementation" in shown


def test_fashion_mnist_reads_the_files_of_the_package(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 1800), ("t10k", 50)):
        for name, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            values = rng.integers(0, 256 if size > 1 else 10, count * size, dtype=np.uint8)
            with gzip.open(tmp_path / f"{part}-{name}-ubyte.gz", "wb") as file:
                file.write(bytes(header) + values.tobytes())
    shown = run("opacus_fashion_mnist.py", "--data", str(tmp_path), "--steps", "4", "--canaries", "2000")
    assert "2000" in shown
    assert "is not refuted" in shown


def test_jax() -> None:
    assert "consistent with a correct implementation" in run("jax_digits.py")
    assert "NOT match what was stated" in run("jax_digits.py", "--noise", "1.2")


def test_black_box() -> None:
    unprotected, private = run("black_box.py").split("diffprivlib's naive Bayes")
    assert "epsilon is at least 2" in unprotected
    assert "no epsilon above 0" in private


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("fault", "refuted", "conforms"),
    [
        ("none", False, True),
        ("halved", False, False),
        ("unclipped", True, False),
        ("mean-clipped", True, False),
    ],
)
def test_broken_training_is_caught_and_correct_training_is_not(
    fault: str, refuted: bool, conforms: bool
) -> None:
    report = load("broken_training").train(fault, seed=0)
    assert report.refuted is refuted
    assert report.conformance.conforms is conforms
    if fault == "halved":
        assert report.conformance.p_value < 1e-6


def test_noise_forgotten_on_rank_0_is_caught() -> None:
    shown = run("broken_training.py", "--fault", "forgotten")
    assert "is refuted" in shown
    assert "NOT match what was stated" in shown
