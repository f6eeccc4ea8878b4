"""Programs of others, audited as they are: correct ones are not accused, and faults are found."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import canaria

PROGRAMS = Path(__file__).parent.parent / "programs"
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


def audited(program: str, *words: str) -> dict[str, Any]:
    ran = canaria("audit-program", str(PROGRAMS / program), "--json", "--", *words)
    assert ran.code in (0, 1), ran.err
    return json.loads(ran.out.splitlines()[-1])


seeds = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 5))]
)


class TestHuggingFace:
    """Trainer, which wraps model, optimizer and loader by Accelerate; all weights, or LoRA by PEFT."""

    @seeds
    @pytest.mark.parametrize("how", [[], ["--lora"]], ids=["full", "LoRA"])
    def test_correct_training_is_not_accused(self, how: list[str], seed: int) -> None:
        found = audited("hf_trainer.py", *how, "--seed", str(seed))
        assert found["refuted"] is False
        assert found["conformance"]["p_value"] > 1e-3
        assert found["contradictions"] == []

    @pytest.mark.parametrize(
        "how", [[], pytest.param(["--lora"], marks=pytest.mark.full)], ids=["full", "LoRA"]
    )
    def test_half_of_the_noise_is_found(self, how: list[str]) -> None:
        assert audited("hf_trainer.py", *how, "--fault", "half")["conformance"]["p_value"] < 1e-6

    def test_batches_that_are_not_poissons_are_named(self) -> None:
        ran = canaria("audit-program", str(PROGRAMS / "hf_trainer.py"), "--", "--fault", "shuffled")
        assert ran.code == 2
        assert "its accountant takes batches for Poisson's" in ran.err.splitlines()[-1]
