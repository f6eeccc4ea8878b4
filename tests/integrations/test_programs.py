"""Programs of others, audited as they are: correct ones are not accused, and faults are found.

False alarms: 1e-3 to a program and seed; faults must show at 1e-6, or be named.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import pytest
import torch

from tests.cli.command import Ran, canaria
from tests.integrations.lines import run_with

PROGRAMS = Path(__file__).parent.parent / "programs"
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
IN_JAX = {
    "from sklearn": "from canaria.integrations.jax_privacy import attach",
    "    optimizer = ": "    privatizer = (audit := attach(privatizer, params, canaries=1000, rng=0, clip_norm=grad_fn, noise_multiplier=NOISE_MULTIPLIER, sample_rate=rate, steps=options.steps)).privatizer",
    '    print(f"eps': "    print(audit.report(noise_state, claimed=epsilon, delta=DELTA).to_json())",
}
"""The lines with which a program in JAX Privacy is audited, and where each goes in."""


class Program(NamedTuple):
    """A program, a fault of its own besides half of the noise, and how that is named, if it is."""

    file: str
    fault: str
    named: str = ""
    words: tuple[str, ...] = ()
    lines: dict[str, str] | None = None

    def run(self, fault: str, seed: int = 0) -> Ran:
        words = (*self.words, "--fault", fault, "--seed", str(seed))
        if self.lines is None:
            return canaria("audit-program", str(PROGRAMS / self.file), "--json", "--", *words)
        return run_with(self.lines, PROGRAMS / self.file, *words)

    def audited(self, fault: str, seed: int = 0) -> dict[str, Any]:
        ran = self.run(fault, seed)
        assert ran.code in (0, 1), ran.err
        return json.loads(ran.out.splitlines()[-1])


SHUFFLED = "its accountant assumes Poisson sampling"
TABLE = {
    "Opacus": Program("plain_opacus.py", "unclipped", "gradients are not clipped"),
    "Accelerate": Program("accelerate_loop.py", "accumulated", "batches were accumulated"),
    "Trainer": Program("hf_trainer.py", "shuffled", SHUFFLED),
    "Trainer with LoRA": Program("hf_trainer.py", "shuffled", SHUFFLED, words=("--lora", "--ghost")),
    "Lightning": Program("lightning_fit.py", "shuffled", SHUFFLED),
    "JAX Privacy": Program("jax_transformer.py", "one-key", lines=IN_JAX),
    "mostlyai-engine": Program("mostlyai_table.py", "reseeded"),
}
SLOW = ("Trainer with LoRA", "JAX Privacy", "mostlyai-engine")
"""Each run of these takes seconds; `make test` has their correct run and their own fault."""
programs = pytest.mark.parametrize(
    "program",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (name == "mostlyai-engine"))
        for name, one in TABLE.items()
    ],
    ids=TABLE,
)
seeds = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 5))]
)


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    """Programs think that the process is theirs; what JAX runs is short, so it is compiled fast."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    with mock.patch.dict(os.environ):
        yield
    jax.config.update("jax_disable_most_optimizations", before)
    torch.set_flush_denormal(False)


@seeds
@programs
def test_correct_training_is_not_accused(program: Program, seed: int) -> None:
    found = program.audited("none", seed)
    assert found["refuted"] is False
    assert found["conformance"]["p_value"] > 1e-3
    assert found["contradictions"] == []


@pytest.mark.parametrize(
    "program",
    [pytest.param(one, marks=pytest.mark.full) if name in SLOW else one for name, one in TABLE.items()],
    ids=TABLE,
)
def test_half_of_the_noise_is_found(program: Program) -> None:
    assert program.audited("half")["conformance"]["p_value"] <= 1e-6


@programs
def test_another_fault_is_found(program: Program) -> None:
    ran = program.run(program.fault)
    if program.named:
        assert ran.code in (1, 2)
        assert program.named in (ran.out if ran.code == 1 else ran.err).splitlines()[-1]
    else:
        assert json.loads(ran.out.splitlines()[-1])["conformance"]["p_value"] <= 1e-6
