"""Federated training with Flower in one process: digits, 50 clients with shards of different sizes."""

import argparse
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity
from sklearn.datasets import load_digits

from canaria.integrations.flower import Audit, audited

CLIENTS, NOISE, CLIP = 50, 1.0, 0.5
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as Flower does where it runs a server
app = ClientApp()


class InProcess(Grid):
    """Clients of this process, each with a shard of the data; they answer one after the other."""

    run = None

    def __init__(self, seed: int) -> None:
        digits, rng = load_digits(), np.random.default_rng(seed)
        order = rng.permutation(len(digits.data))
        ends = np.sort(rng.choice(np.arange(1, len(order)), CLIENTS - 1, replace=False))
        self.shards = [(digits.data[some] / 16, digits.target[some]) for some in np.split(order, ends)]

    def get_node_ids(self) -> Iterable[int]:
        return range(1, CLIENTS + 1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        return [app(message, self.context(message.metadata.dst_node_id)) for message in messages]

    def context(self, node: int) -> Context:
        features, labels = self.shards[node - 1]
        data = {"features": ArrayRecord([features]), "labels": ArrayRecord([labels])}
        return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(data), run_config={})

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


@app.train()
def train(message: Message, context: Context) -> Message:
    """Two steps of softmax regression on the shard; `weight` is 1, for a mean that weighs clients alike."""
    weights, biases = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
    (features,), (labels,) = (context.state[name].to_numpy_ndarrays() for name in ("features", "labels"))
    for _ in range(2):
        logits = features @ weights + biases
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors = chances / chances.sum(axis=1, keepdims=True) - np.eye(10)[labels]
        weights -= (features.T @ errors / len(labels)).astype(np.float32)
        biases -= errors.mean(axis=0).astype(np.float32)
    content = {
        "arrays": ArrayRecord({"weights": Array(weights), "biases": Array(biases)}),
        "metrics": MetricRecord({"num-examples": len(labels), "weight": 1}),
    }
    return Message(RecordDict(content), reply_to=message)


class HalfOfTheNoise(DifferentialPrivacyServerSideFixedClipping):
    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        self.noise_multiplier /= 2
        noisy = super()._add_noise_to_aggregated_arrays(aggregated_arrays)
        self.noise_multiplier *= 2
        return noisy


def strategy_of(fault: str) -> DifferentialPrivacyServerSideFixedClipping:
    """The strategy; FedAvg weighs clients by their examples if it is not told otherwise."""
    averaging = FedAvg(
        fraction_train=0.2,
        fraction_evaluate=0.0,
        weighted_by_key="num-examples" if fault == "weighting" else "weight",
    )
    kind = HalfOfTheNoise if fault == "half" else DifferentialPrivacyServerSideFixedClipping
    return kind(averaging, noise_multiplier=NOISE, clipping_norm=CLIP, num_sampled_clients=CLIENTS // 5)


def accuracy(arrays: ArrayRecord) -> float:
    weights, biases = arrays.to_numpy_ndarrays()
    digits = load_digits()
    return float(np.mean((digits.data / 16 @ weights + biases).argmax(axis=1) == digits.target))


def main(words: list[str] | None = None) -> Audit:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--canaries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "weighting"], default="none")
    options = parser.parse_args(words)
    random.seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002 (Flower draws its noise there)
    initial = ArrayRecord(
        {
            "weights": Array(np.zeros((64, 10), np.float32)),
            "biases": Array(np.zeros(10, np.float32)),
        }
    )
    audit = audited(strategy_of(options.fault), canaries=options.canaries, rng=options.seed)
    result = audit.start(grid=InProcess(options.seed), initial_arrays=initial, num_rounds=options.rounds)
    print(f"accuracy {accuracy(result.arrays):.2f}")
    print(audit.conformance())
    print(audit.bound(delta=1e-5).epsilon)
    return audit


if __name__ == "__main__":
    main()
