"""What a hundred thousand canaries prove about LoRA on a language model. Run by `make bench-lora`, on a GPU.

A Llama of some 98 million weights, frozen, with adapters that Opacus trains: 200 steps, sample rate 1/64,
noise multiplier 0.8. The canaries ride along in the clipped sum. One training, four rules: the table shows
what each of them proves, at delta 0 and at the delta of the claim. What the audit costs is the ratio of two
trainings, with and without it, that alternate in blocks of steps. `--write` puts it into RESULTS.md.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import opacus
import peft
import torch
import transformers
from opacus import PrivacyEngine
from sections import write
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import Audit, attach
from canaria.rules import AdaptiveRule, Bet, Online, Ranked, Rule, Soft

MARK = "<!-- lora -->"
STEPS, BATCHES, NOISE, DELTA = 200, 64, 0.8, 1e-5
BATCH, TOKENS, WORDS = 16, 64, 8_192
BLOCK, BLOCKS = 8, 100
RULES: dict[str, Rule | AdaptiveRule] = {
    "`Ranked()`": Ranked(),
    "`Soft()`": Soft(),
    "`Bet()`": Bet(),
    "`Online()`": Online(),
}


def adapted_llama() -> torch.nn.Module:
    """A Llama with fresh weights, and LoRA adapters of rank 8 on the queries and values of its attention."""
    configuration = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=TOKENS,
    )
    adapters = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    model: torch.nn.Module = peft.get_peft_model(transformers.LlamaForCausalLM(configuration), adapters)
    return model


class Training:
    """A training by Opacus, step by step."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.device, model = device, adapted_llama().to(device)
        self.weights = sum(p.numel() for p in model.parameters())
        rows = torch.randint(0, WORDS, (BATCH * BATCHES, TOKENS))
        self.model, self.optimizer, self.loader = PrivacyEngine().make_private(
            module=model.train(),
            optimizer=torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3),
            data_loader=DataLoader(TensorDataset(rows), batch_size=BATCH),
            noise_multiplier=NOISE,
            max_grad_norm=1.0,
        )
        self._batches = self._endless()

    def _endless(self) -> Iterator[torch.Tensor]:
        while True:
            for (batch,) in self.loader:
                yield batch

    def step(self, tokens: torch.Tensor) -> None:
        self.model(input_ids=tokens, labels=tokens).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step(next(self._batches).to(self.device))

    def timed(self, count: int) -> float:
        """Seconds of a step on one and the same batch."""
        tokens = torch.zeros((BATCH, TOKENS), dtype=torch.long, device=self.device)
        wait = torch.cuda.synchronize if self.device == "cuda" else (lambda: None)
        wait()
        start = time.perf_counter()
        for _ in range(count):
            self.step(tokens)
        wait()
        return (time.perf_counter() - start) / count


def trained(canaries: int, device: str) -> tuple[Audit, int, float]:
    """The audit of one training, the weights of its model, and the seconds of a step."""
    training = Training(device)
    audit = attach(training.optimizer, training.loader, injection="sum", canaries=canaries, rng=0)
    start = time.perf_counter()
    training.steps(STEPS)
    return audit, training.weights, (time.perf_counter() - start) / STEPS


def overhead(canaries: int, device: str) -> str:
    """By how much a step takes longer with the audit: the median over blocks, and its error."""
    bare, audited = Training(device), Training(device)
    attach(audited.optimizer, audited.loader, injection="sum", canaries=canaries, rng=0)
    ratios = []
    for block in range(1 + BLOCKS):
        ratio = audited.timed(BLOCK) / bare.timed(BLOCK)
        ratios += [ratio] if block else []
    middle = sorted(ratios)[BLOCKS // 4 : -BLOCKS // 4]
    error = 1.5 * (middle[-1] - middle[0]) / BLOCKS**0.5
    return f"{100 * (statistics.median(ratios) - 1):+.1f}% ± {100 * error:.1f}"


def table(canaries: int, device: str) -> list[str]:
    audit, weights, seconds = trained(canaries, device)
    recording = audit.recording()
    accountant = PrivacyEngine().accountant
    accountant.history = [(NOISE, 1 / BATCHES, STEPS)]
    adapters = sum(p.numel() for p in audit.optimizer.params)
    lines = [
        "",
        f"## {canaries:,} canaries in LoRA on a language model (`make bench-lora`)",
        "",
        f"Llama with {weights:,} weights, {adapters:,} of them trained; {STEPS} steps of "
        f"{1e3 * seconds:.0f} ms, sample rate 1/{BATCHES}, noise multiplier {NOISE}; by the accountant ε = "
        f"{accountant.get_epsilon(DELTA):.2f} at δ = {DELTA:g}. Conformance: p = "
        f"{recording.conformance().p_value:.2g}. The audit adds {overhead(canaries, device)} to a step (the "
        f"limit is 2%). {machine(device)}.",
        "",
        f"| rule | ε at least, δ = {DELTA:g} | ε at least, δ = 0 |",
        "| --- | --- | --- |",
    ]
    for name, rule in RULES.items():
        bounds = [recording.bound(delta, rule=rule).epsilon for delta in (DELTA, 0.0)]
        lines.append(f"| {name} | {bounds[0]:.2f} | {bounds[1]:.2f} |")
    return [*lines, ""]


def machine(device: str) -> str:
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    used = (torch, opacus, transformers, peft)
    versions = ", ".join(f"{package.__name__} {package.__version__}" for package in used)
    return f"{where}, {versions}, {datetime.now(tz=UTC):%Y-%m-%d}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canaries", type=int, default=100_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = table(options.canaries, "cuda" if torch.cuda.is_available() else "cpu")
    print("\n".join(lines))
    if options.write:
        write(MARK, lines)


if __name__ == "__main__":
    main()
