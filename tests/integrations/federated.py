"""A federation in this process whose clients send what a function says."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
SHAPES = {"weights": (20, 30), "biases": (30,)}
Reply = tuple[dict[str, np.ndarray], dict[str, float]]


class Federation(Grid):
    """So many clients; `answer(node, arrays, round)` is what one sends: arrays and metrics.

    `reach` says how many of those that were asked in a round reply.
    """

    run = None

    def __init__(
        self,
        nodes: int,
        answer: Callable[[int, dict[str, np.ndarray], int], Reply],
        *,
        mods: Any = None,
        reach: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self.nodes, self.app, self.round, self.reach = nodes, ClientApp(), 0, reach

        @self.app.train(mods=mods)
        def train(message: Message, context: Context) -> Message:
            sent = {name: array.numpy() for name, array in message.content["arrays"].items()}
            arrays, metrics = answer(context.node_id, sent, self.round)
            content = {
                "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
                "metrics": MetricRecord(metrics),
            }
            return Message(RecordDict(content), reply_to=message)

    def get_node_ids(self) -> Iterable[int]:
        return range(1, self.nodes + 1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Any:
        asked = list(messages)
        if asked:
            self.round += 1
        replies = [self.app(one, self.context(one.metadata.dst_node_id)) for one in asked]
        return replies[: self.reach(self.round)]

    def context(self, node: int) -> Context:
        return Context(run_id=1, node_id=node, node_config={}, state=RecordDict({}), run_config={})

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


def initial(dtype: Any = np.float32, scale: float = 1.0) -> ArrayRecord:
    rng = np.random.default_rng(0)
    return ArrayRecord(
        {name: Array((scale * rng.normal(size=shape)).astype(dtype)) for name, shape in SHAPES.items()}
    )


def alike(node: int, arrays: dict[str, np.ndarray], number: int) -> Reply:
    """Updates of norm far above any clip norm, and the same weight for all."""
    rng = np.random.default_rng([node, number])
    moved = {
        name: (array + rng.normal(size=array.shape)).astype(array.dtype) for name, array in arrays.items()
    }
    return moved, {"num-examples": 7, "loss": float(node)}
