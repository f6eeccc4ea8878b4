"""What canaries with weights of their own show of a finished model. Run by `make bench-finished`, on a GPU.

Fashion-MNIST (20,000 pictures) with a small CNN, and language models (4,000 texts), trained by Opacus with
1,000 canaries that `plant` hides by coins; scores are the model's answers. Each row of the table is the mean
over seeds, in parallel processes. `--write` puts it into RESULTS.md. On a machine without Debian's
`dataset-fashion-mnist`, `--pictures` names an archive with the arrays x, y, xt, yt.
"""

import argparse
import gzip
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import opacus
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sections import write
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from canaria import plant
from canaria.blackbox import own_tokens, own_units
from canaria.blackbox.canaries import mislabelled
from canaria.blackbox.scores import logit_scores, loss_scores, token_scores
from canaria.claims.accounting import dpsgd_noise_multiplier

MARK = "<!-- finished -->"
DELTA, CANARIES = 1e-5, 1000
PICTURES = Path("/usr/share/datasets/fashion-mnist")
LENGTH, TEXTS = 32, 4000
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Case:
    """A training; one that is `alone` runs once, with no other beside it, so that its time counts."""

    kind: str
    epsilon: float
    rate: float
    steps: int
    lr: float
    alone: bool = False


class Found(NamedTuple):
    """The two bounds, the quality on unseen rows, and the seconds of training."""

    plain: float
    claimed: float
    quality: float
    seconds: float


CASES = [
    Case("mislabelled pictures", 8.0, 0.05, 300, 2.0),
    Case("mislabelled pictures", 8.0, 1.0, 60, 4.0),
    Case("pictures, own units", 8.0, 0.05, 300, 2.0),
    Case("pictures, own units", 8.0, 1.0, 60, 4.0),
    Case("texts, own tokens", 8.0, 0.05, 300, 2.0),
    Case("texts, own tokens", 8.0, 1.0, 60, 3.0),
    Case("texts, own tokens", 4.0, 0.05, 300, 1.0),
    Case("texts, own tokens, LoRA", 8.0, 0.05, 300, 2.0),
    Case("texts, own tokens, LoRA", 8.0, 1.0, 60, 10.0),
    Case("texts, 98 million weights", 8.0, 0.05, 100, 0.3, alone=True),
    Case("texts, 98 million weights, LoRA", 8.0, 0.05, 100, 0.3, alone=True),
]
SMALL = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
LARGE = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}


class Net(nn.Module):
    """Convolutions beside a wide dense layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, 16, 5, 2, 2), nn.Conv2d(16, 32, 5, 2, 2)
        self.conv = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten())
        self.wide, self.out = nn.Linear(784, 256), nn.Linear(32 * 49 + 256, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.cat([self.conv(x), torch.relu(self.wide(x.flatten(1)))], 1))
        return logits


class Table(Dataset[Any]):
    """Rows on the device of the model; a batch is one index."""

    def __init__(self, *columns: Any) -> None:
        self._columns = [torch.as_tensor(one).to(DEVICE) for one in columns]

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, place: int) -> list[Tensor]:
        return [one[place] for one in self._columns]

    def __getitems__(self, places: list[int]) -> list[Tensor]:
        index = torch.tensor(places, device=DEVICE)
        return [one[index] for one in self._columns]


def trained(case: Case, model: nn.Module, data: Table, loss: Callable[..., Tensor], at_once: int) -> float:
    """Train by DP-SGD, with Opacus, and return the seconds.

    `loss` gives one number for each row; the last column of the data are weights.
    """
    trainable = [one for one in model.to(DEVICE).parameters() if one.requires_grad]
    private, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=model.train(),
        optimizer=torch.optim.SGD(trainable, lr=case.lr),
        data_loader=DataLoader(data, batch_size=round(case.rate * len(data)), collate_fn=lambda batch: batch),
        noise_multiplier=dpsgd_noise_multiplier(case.epsilon, DELTA, case.steps, case.rate),
        max_grad_norm=1.0,
    )
    start, done = time.perf_counter(), 0
    while done < case.steps:
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=at_once, optimizer=optimizer
        ) as batches:
            for *batch, weights in batches:
                optimizer.zero_grad()
                (loss(private, *batch) * weights).mean().backward()
                optimizer.step()
                done += not optimizer._is_last_step_skipped
                if done == case.steps:
                    break
    model.eval()
    return time.perf_counter() - start


def fashion(path: Path) -> tuple[Any, Any, Any, Any]:
    """20,000 rows to train, and 5,000 to test."""
    if path.is_file():
        held = np.load(path)
        x, y, xt, yt = (held[name] for name in ("x", "y", "xt", "yt"))
    else:
        raw = [
            np.frombuffer(gzip.decompress((path / f"{name}-ubyte.gz").read_bytes()), np.uint8)
            for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
        ]
        x, y, xt, yt = raw[0][16:], raw[1][8:], raw[2][16:], raw[3][8:]
    shaped = [(one.reshape(-1, 1, 28, 28) / 255).astype(np.float32) for one in (x, xt)]
    return shaped[0][:20_000], y[:20_000].astype(np.int64), shaped[1][:5_000], yt[:5_000].astype(np.int64)


def of_class(model: nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(model(rows), labels, reduction="none")


def of_next_token(model: nn.Module, texts: Tensor) -> Tensor:
    logits = model(input_ids=texts).logits[:, :-1]
    return cross_entropy(logits.transpose(1, 2), texts[:, 1:], reduction="none").mean(1)


def bounds_of(planted: Any, scores: Any, case: Case) -> tuple[float, float]:
    family = f"dpsgd:steps={case.steps},sample_rate={case.rate}"
    plain, claimed = (planted.bound(scores, DELTA, rng=0, family=one).epsilon for one in (None, family))
    return plain, claimed


def pictures(case: Case, seed: int, path: Path, canaries: int) -> Found:
    x, y, xt, yt = fashion(path)
    model, own = Net(), case.kind == "pictures, own units"
    if own and canaries:
        model, (rows, labels) = own_units(model, (1, 28, 28), canaries, rng=seed)
    else:
        rows, labels = mislabelled(x, y, max(canaries, 1), rng=seed)
    planted = plant((x, y), (rows.astype(np.float32), labels), seed, form="zero-out")
    count = len(x) + canaries
    columns = [one[:count] for one in (*planted.dataset, planted.weights.astype(np.float32))]
    seconds = trained(case, model, Table(*columns), of_class, at_once=4000)
    with torch.no_grad():
        answers = model(torch.tensor(rows, dtype=torch.float32, device=DEVICE)).cpu().numpy()
        right = (model(torch.tensor(xt, device=DEVICE)).argmax(1).cpu().numpy() == yt).mean()
    if not canaries:
        return Found(0.0, 0.0, float(right), seconds)
    scores = logit_scores(answers, labels) if own else loss_scores(answers, labels, logits=True)
    return Found(*bounds_of(planted, scores, case), float(right), seconds)


def language(case: Case, seed: int, path: Path, canaries: int) -> Found:
    from transformers import LlamaConfig, LlamaForCausalLM

    words, sizes = (8192, LARGE) if case.alone else (64, SMALL)
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=words, max_position_embeddings=64, **sizes))
    texts = markov(words, np.random.default_rng(seed))
    rows = own_tokens(model, max(canaries, 1), LENGTH, rng=seed)
    if case.kind.endswith("LoRA"):
        from peft import LoraConfig, get_peft_model

        how = {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["own_tokens"]}
        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, **how))
    planted = plant(texts[:TEXTS], rows, seed, form="zero-out")
    count = TEXTS + canaries
    data = Table(planted.dataset[:count], planted.weights[:count].astype(np.float32))
    seconds = trained(case, model, data, of_next_token, at_once=64 if case.alone else 500)
    unseen = -token_scores(model, texts[TEXTS:]).mean() / (LENGTH - 1)
    if not canaries:
        return Found(0.0, 0.0, float(unseen), seconds)
    return Found(*bounds_of(planted, token_scores(model, rows), case), float(unseen), seconds)


def markov(words: int, rng: np.random.Generator) -> Any:
    """Texts of a sparse Markov chain; the last 500 are for testing."""
    following = rng.integers(0, words, (words, 4))
    texts = rng.integers(0, words, (TEXTS + 500, 1))
    for _ in range(LENGTH - 1):
        texts = np.append(texts, following[texts[:, -1], rng.integers(0, 4, len(texts))][:, None], axis=1)
    return texts


def measured(task: tuple[Case, int, Path, int]) -> Found:
    case, seed, path, canaries = task
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    torch.manual_seed(seed)
    return (language if "texts" in case.kind else pictures)(case, seed, path, canaries)


def row(case: Case, seeds: int, path: Path, pool: Any) -> str:
    tasks = [(case, seed, path, CANARIES) for seed in range(1 if case.alone else seeds)] + [
        (case, 0, path, 0)
    ]
    *found, without = map(measured, tasks) if case.alone else pool.map(measured, tasks, chunksize=1)
    plain, claimed, quality, seconds = map(list, zip(*found, strict=True))
    form = "loss {:.2f}, {:.2f}" if "texts" in case.kind else "accuracy {:.3f}, {:.3f}"
    slower = f"{100 * (seconds[0] / without.seconds - 1):+.0f}%" if case.alone else ""
    cells = [
        *(case.kind, f"{case.epsilon:g}", f"{case.rate:g}", f"{case.steps}", shown(plain), shown(claimed)),
        *(f"{len(plain)}", form.format(statistics.fmean(quality), without.quality), slower),
    ]
    return f"| {' | '.join(cells)} |"


def shown(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--processes", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [
        "",
        "## Only the finished model (`make bench-finished`)",
        "",
        "<!-- --8<-- [start:finished] -->",
        f"{CANARIES:,} canaries, δ = {DELTA:g}, mean over seeds with its standard error; ε is what the "
        "accountant promises. Quality on unseen rows with canaries, and without.",
        "",
        "| canaries | ε | rate | steps | shown for any mechanism | by the DP-SGD claim | seeds | quality | slower |",  # noqa: E501
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for case in CASES:
            if options.only in case.kind:
                lines.append(row(case, options.seeds, options.pictures, pool))
                print(lines[-1], flush=True)
    if options.write:
        write(MARK, [*lines, "<!-- --8<-- [end:finished] -->", ""])


if __name__ == "__main__":
    main()
