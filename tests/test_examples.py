"""The examples run as they stand, and say what they should."""

import gzip
import io
import re
import runpy
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canaria.claims.accounting import dpsgd_epsilon
from tests.scripts import EXAMPLES, alike, load

TRAINING = EXAMPLES.parent / "docs" / "training.md"
ISOLATION = EXAMPLES.parent / "docs" / "how-to" / "isolation.md"


def run(name: str, *options: str) -> str:
    """What the script prints; in this process, because frameworks take seconds to load."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(), redirect_stdout(shown):
        warnings.simplefilter("ignore")
        patched.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return shown.getvalue()


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


def test_neighbours() -> None:
    """Both answers are as the docs show them."""
    assert run("neighbours.py") in ISOLATION.read_text()


@pytest.mark.full
@pytest.mark.parametrize("loss", ["batch", "rows"])
def test_isolation(loss: str) -> None:
    """Both answers are as the docs show them, up to the last digits, in which machines differ."""
    shown = re.search(rf"--loss {loss}\n(.*?)\n```", ISOLATION.read_text(), re.S)
    assert shown is not None
    assert alike(shown[1], run("isolation.py", "--loss", loss).strip())


@pytest.mark.full
def test_jax() -> None:
    assert "consistent with a correct implementation" in run("jax_digits.py")
    assert "NOT match what was stated" in run("jax_digits.py", "--noise", "1.2")


@pytest.mark.slow
def test_black_box() -> None:
    unprotected, private = run("black_box.py").split("diffprivlib's naive Bayes")
    assert "ε ≥ 2" in unprotected
    assert "ε ≥ 0.000" in private


def bound_in_the_docs(fault: str) -> float:
    (shown,) = re.findall(rf"^\| {fault} \| ([\d.]+) \|", TRAINING.read_text(), re.M)
    return float(shown)


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
    assert report.bound.epsilon == pytest.approx(bound_in_the_docs(fault), abs=0.02)
    if fault in ("none", "halved"):
        last = report.rungs[3]
        truth = dpsgd_epsilon(2.4224 / (2 if fault == "halved" else 1), 1e-5, 100, 0.1, "pld")
        assert last.least < truth < last.most
        assert close_to_the_docs(report, fault)


def close_to_the_docs(report: Any, fault: str) -> bool:
    """Whether the docs show the rungs as they are printed, up to the last digits, in which machines differ."""
    pattern = rf"--fault {fault}\n(what is shown.*?)\n```"
    shown = re.search(pattern, TRAINING.read_text(), re.S)
    printed = str(report).partition("what is shown")[2].partition("\n  guesses")[0]
    return shown is not None and alike(shown[1][13:], printed)


@pytest.mark.full
def test_noise_forgotten_on_rank_0_is_caught() -> None:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / "broken_training.py"), "--fault", "forgotten"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"ε ≥ {bound_in_the_docs('forgotten'):.3f}" in shown
    assert "is refuted" in shown
    assert "NOT match what was stated" in shown
