"""An audited strategy: canary clients join the replies of a round, and the noisy mean is read."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.integrations.flower._checks import require_private
from canaria.integrations.flower._internals import FixedClipping, joined_by, stated_by, weights_of
from canaria.training.canaries.designs import RAW_NORM
from canaria.training.findings import Findings
from canaria.training.loop import Contribution
from canaria.training.recorded import Recorded
from canaria.training.recorder import Recorder
from canaria.training.recording import Recording

_EXCLUDED: Final = 1e-6
"""The update norm of an excluded canary, in clip norms. It is not 0, because Flower divides by the norm."""
_MORE: Final = 1.05
"""Stated values may be exceeded by this factor before it counts as a contradiction."""


class Audit(flower.Strategy, Recorded):
    """A strategy that audits another one while it trains; made by `audited`.

    Start it in place of the audited strategy, which is `strategy`. Call `bound`, `report` or `conformance`
    when training is done. An audit lives as long as its process: if training is resumed in another process,
    it needs a new audit.

    Example:
        ```python
        audit = audited(strategy, canaries=500)
        result = audit.start(grid=grid, initial_arrays=arrays, num_rounds=50)
        print(audit.report(claimed=8.0, delta=1e-5))
        ```

    """

    def __init__(
        self,
        strategy: FixedClipping,
        *,
        canaries: int,
        sample_rate: float | None,
        num_examples: float | None,
        rng: Seed,
    ) -> None:
        super().__init__()
        self.strategy = strategy
        self._canaries, self._rng = canaries, rng
        self._given_rate, self._num_examples = sample_rate, num_examples
        self._stated = stated_by(strategy)
        self._clip_norm = self._stated.clip_norm
        self._clips = isinstance(strategy, flower.DifferentialPrivacyServerSideFixedClipping)
        self._current: dict[str, np.ndarray] = {}
        self._audited: list[str] = []
        self._rate = 0.0
        self._recorder: Recorder | None = None
        self._drawn: list[Contribution] | None = None
        self._heaviest, self._weighted_by, self._most_sampled = 0.0, "", 0.0
        self._most_replies = 0
        self._longest = 0.0
        self._ended = ""

    def __repr__(self) -> str:
        """The audited strategy in words."""
        return f"Audit of {self.strategy!r}"

    def summary(self) -> None:
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._current = {name: array.numpy() for name, array in arrays.items()}
        if messages:
            self._begin(server_round, len(messages) / len(list(grid.get_node_ids())))
        return messages

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate with canary clients among the replies, and return the mean at the scale without them.

        If Flower does not aggregate a round, the audit ignores it and uses the same draw in the next round.
        """
        received = list(replies)
        weighing = weights_of(self.strategy, received)
        if self._recorder is None or weighing is None or self._ended:
            return self.strategy.aggregate_train(server_round, received)
        if set(_arrays_of(received[0].content)) != set(self._current):
            raise InputError("clients must reply with all of the arrays that they were sent, and no others")
        self._weighted_by, weights = weighing
        # Programs lower it from round to round, and Flower's noise with it: the audit counts in clip norms.
        self._clip_norm = stated_by(self.strategy).clip_norm
        if self._drawn is None:
            self._drawn = self._recorder.draw_each()
        joined = self._joined(received, weights, self._drawn)
        mean, metrics = self._aggregated(server_round, joined)
        if mean is None:
            return None, metrics
        self._heaviest = max(self._heaviest, self._stated.clients * max(weights) / sum(weights))
        # In simulations that make messages by hand, they come from nobody.
        senders = Counter(reply.metadata.src_node_id for reply in received if reply.metadata.src_node_id)
        self._most_replies = max([self._most_replies, *senders.values()])
        noisy = {name: array.numpy() - self._current[name] for name, array in mean.items()}
        self._read(self._recorder, joined, noisy)
        self._drawn = None
        return self._without_canaries(joined, noisy), metrics

    def _joined(
        self, received: list[Message], weights: list[float], drawn: list[Contribution]
    ) -> "_JoinedRound":
        """The round with the replies of canary clients, each with the weight of one."""
        others = sum(weights)
        return _JoinedRound(
            received=received,
            weights=weights,
            canaries=self._replies(drawn, received[0].content, max(weights)),
            grown=(others + len(drawn) * self._weight(max(weights))) / others,
            # Arrays of whole numbers have a mean that is not whole; the others keep their precision.
            kinds={
                name: (array.numpy() * 1.0).dtype for name, array in _arrays_of(received[0].content).items()
            },
        )

    def _aggregated(
        self, server_round: int, joined: "_JoinedRound"
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the audited strategy makes of all replies; also reads the clip norm that its noise is for."""
        for reply in joined.received:
            _double(reply.content)
        clients = self._clients(joined)
        with joined_by(len(joined.canaries), self.strategy, clients) as noised_at:
            mean, metrics = self.strategy.aggregate_train(server_round, [*joined.canaries, *joined.received])
        if mean is not None and self._clips and noised_at:
            (self._clip_norm,) = noised_at
        return mean, metrics

    def _clients(self, joined: "_JoinedRound") -> float:
        """The number of clients that the noise of the mean is divided by while canaries take part."""
        return _whole(self._stated.clients * joined.grown)

    def _read(self, recorder: Recorder, joined: "_JoinedRound", noisy: dict[str, Floats]) -> None:
        """Show the recorder the sums behind the noisy mean, and behind that of the real clients alone.

        A mean over `clients` is a sum divided by them. Real clients have the share 1 / grown of the weights.
        """
        real = self._mean_update(joined)
        clients, unit = self._clients(joined), self._stated.clip_norm / self._clip_norm
        recorder.see(
            [unit * clients * noisy[name] for name in self._audited],
            real=[unit * clients / joined.grown * real[name] for name in self._audited],
        )

    def recording(self) -> Recording:
        if self._recorder is None:
            raise InputError("no round of training was seen; start the audit before asking for it")
        run = self._recorder.recording()
        return replace(
            run,
            injection="clients" if self._clips else "clipped clients",
            by_the_optimizer=True,
            findings=run.findings + Findings(contradictions=self._contradictions()),
            ended=self._ended,
        )

    def _begin(self, server_round: int, share: float) -> None:
        """Place the canaries in the first round; in later rounds, compare the sampled share with it."""
        self._most_sampled = max(self._most_sampled, share)
        if self._recorder is not None:
            if self._given_rate is None and share < self._rate * (1 - 1e-9) and not self._ended:
                self._ended = (
                    f"from round {server_round} on: it samples {share:.3g} of the clients, the first one "
                    f"{self._rate:.3g}; give sample_rate"
                )
            return
        self._audited = [name for name, array in self._current.items() if array.dtype.kind == "f"]
        self._rate = share if self._given_rate is None else self._given_rate
        self._recorder = Recorder(
            [self._current[name] for name in self._audited],
            canaries=self._canaries,
            sample_rate=self._rate,
            noise_multiplier=self._stated.noise_multiplier,
            clip_norm=self._stated.clip_norm,
            unit="client",
            rng=self._rng,
        )

    def _weight(self, heaviest: float) -> float:
        """The weight of a canary client in the mean."""
        return heaviest if self._num_examples is None else self._num_examples

    def _replies(self, drawn: list[Contribution], like: RecordDict, heaviest: float) -> list[Message]:
        """The replies of canary clients. Arrays that a canary does not change are shared by all replies."""
        ((arrays_name, _),) = like.array_records.items()
        ((metrics_name, metrics),) = like.metric_records.items()
        sent = {name: Array(_doubled(array)) for name, array in self._current.items()}
        weighed = {**metrics, self._weighted_by: self._weight(heaviest)}
        replies = []
        for canary in drawn:
            touched = self._audited[canary.parameter]
            array = _doubled(self._current[touched]).copy(order="C")
            array.reshape(-1)[canary.place] += self._norm(canary) * self._clip_norm
            content = RecordDict(
                {
                    arrays_name: ArrayRecord({**sent, touched: Array(array)}),
                    metrics_name: MetricRecord(weighed),
                }
            )
            replies.append(Message(content=content, dst_node_id=0, message_type="train"))
        return replies

    def _norm(self, canary: Contribution) -> float:
        """The norm of a canary client's update, in clip norms."""
        if not canary.included:
            return _EXCLUDED
        return RAW_NORM if self._clips else 1.0

    def _mean_update(self, joined: "_JoinedRound") -> dict[str, Floats]:
        """The mean of the clipped updates of real clients; also records the largest norm."""
        total = {name: np.zeros(array.shape) for name, array in self._current.items()}
        rounded = sum(
            np.finfo(joined.kinds[name]).eps * float(np.linalg.norm(self._current[name]))
            for name in self._audited
        )
        for reply, weight in zip(joined.received, joined.weights, strict=True):
            square = 0.0
            for name, array in _arrays_of(reply.content).items():
                update = array.numpy() - self._current[name].astype(np.float64)
                square += float(np.square(update).sum())
                total[name] += weight / sum(joined.weights) * update
            self._longest = max(self._longest, (math.sqrt(square) - rounded) / self._clip_norm)
        return total

    def _without_canaries(self, joined: "_JoinedRound", noisy: dict[str, Floats]) -> ArrayRecord:
        """The updated model, as if canary clients did not count in the mean, in the clients' precision."""
        return ArrayRecord(
            {
                name: Array(np.asarray(self._current[name] + joined.grown * update, dtype=joined.kinds[name]))
                for name, update in noisy.items()
            }
        )

    def _contradictions(self) -> tuple[str, ...]:
        found = []
        if self._heaviest > _MORE:
            found.append(
                f"a client weighed up to {self._heaviest:.3g} times what the noise is made for: the mean is "
                f"weighted by {self._weighted_by!r}, or fewer clients replied than num_sampled_clients says"
            )
        if self._most_replies > 1:
            found.append(
                f"a client replied {self._most_replies} times in a round, and each reply moves the mean: "
                "noise is made for one"
            )
        if self._longest > _MORE:
            found.append(
                f"the clipped update of a client has a norm of {self._longest:.3g} clip norms, above the "
                "limit of 1: updates are not clipped as a whole, or not at all"
            )
        if self._most_sampled > _MORE * self._rate:
            found.append(
                f"{self._most_sampled:.3g} of the clients were sampled in a round, where sample_rate is "
                f"{self._rate:.3g}"
            )
        return tuple(found)


def audited(
    strategy: flower.Strategy,
    *,
    canaries: int,
    sample_rate: float | None = None,
    num_examples: float | None = None,
    rng: Seed = None,
) -> Audit:
    """Wrap a Flower strategy in one that audits it. Start the wrapper instead.

    In each round, canary clients join the replies. Their updates have one nonzero weight, of 10 clip norms,
    so that the server clips them (or of 1 clip norm, if clients clip). A hidden coin decides whether a canary
    is included; an excluded one sends an update of nearly 0. The audited strategy clips, averages and adds
    its noise. While it runs, the number of clients by which it divides the noise grows with the canaries, as
    does the divisor of the mean; both are corrected afterwards. So real clients and the noise change the
    model as they would without an audit, and only the canaries are added.

    The bound is about adding or removing one client while the divisor of the mean stays the same: an absent
    client has an update of 0. The noise of Flower's strategies is calibrated for that, noise_multiplier *
    clipping_norm / num_sampled_clients. The bound holds for the release of each noisy mean to someone who
    knows the other clients and which of them were sampled, if each client is sampled independently. Flower
    samples a fixed number instead, and canaries do not exercise that.

    Args:
        strategy: `DifferentialPrivacyServerSideFixedClipping` or `DifferentialPrivacyClientSideFixedClipping`
            of `flwr.serverapp.strategy`, around `FedAvg`.
        canaries: The number of canary clients. Each one that takes part is a reply as large as the model.
        sample_rate: The probability that a canary client takes part in a round. By default, the share of
            clients sampled in the first round; the audit then ends at the first round that samples fewer. Use
            1 for a claim that does not rely on sampling.
        num_examples: The weight of a canary client; by default that of the heaviest client of the round. If
            it is larger than any client may have, the bound is too high.
        rng: A seed for the hidden bits, the places and the draws.

    Returns:
        The audit, which is a strategy.

    Raises:
        InputError: If the strategy cannot be audited, or if an argument is not usable.

    Example:
        ```python
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(), noise_multiplier=1.0, clipping_norm=0.5, num_sampled_clients=50
        )
        strategy = audited(strategy, canaries=500)
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=50)
        print(strategy.report(claimed=8.0, delta=1e-5))
        ```

    """
    private = require_private(strategy)
    if sample_rate is not None:
        checks.sample_rate(sample_rate)
    if num_examples is not None and not checks.real("num_examples", num_examples) > 0:
        raise InputError(f"num_examples must be positive, got {num_examples}")
    return Audit(
        private,
        canaries=checks.integer("canaries", canaries, 1),
        sample_rate=sample_rate,
        num_examples=num_examples,
        rng=rng,
    )


@dataclass(frozen=True, kw_only=True)
class _JoinedRound:
    """The replies of a round and the canary clients that join them.

    Attributes:
        received: The replies of real clients.
        weights: Their weights in the mean.
        canaries: The replies of canary clients.
        grown: The weights of all clients together over those of the real ones.
        kinds: The precision of the mean without an audit, by array.
    """

    received: list[Message]
    weights: list[float]
    canaries: list[Message]
    grown: float
    kinds: dict[str, np.dtype[Any]]


def _arrays_of(content: RecordDict) -> ArrayRecord:
    return next(iter(content.array_records.values()))


def _double(content: RecordDict) -> None:
    """Convert a reply to double precision, so that the mean is not rounded to the model's precision."""
    ((name, arrays),) = content.array_records.items()
    content[name] = ArrayRecord({key: Array(_doubled(array.numpy())) for key, array in arrays.items()})


def _doubled(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def _whole(number: float) -> float:
    """Round a number to the nearest integer if it differs only by a rounding error."""
    nearest = round(number)
    return nearest if abs(number - nearest) <= 1e-9 * nearest else number
