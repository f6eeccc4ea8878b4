"""Federated training with Flower: correct strategies are not accused, wrong ones are, and rounds stay as they were."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Error, Message
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
)

from canaria import InputError
from canaria.claims import DpSgd
from canaria.integrations.flower import Audit, audited
from tests.integrations.federated import SHAPES, Federation, alike, initial
from tests.programs import flower_app

NOISE, CLIP, NODES = 1.0, 0.5, 10


def private(
    kind: Any = DifferentialPrivacyServerSideFixedClipping,
    *,
    noise: float = NOISE,
    clients: int = NODES,
    **averaging: Any,
) -> Any:
    inner = FedAvg(**{"fraction_evaluate": 0.0, **averaging})
    return kind(inner, noise_multiplier=noise, clipping_norm=CLIP, num_sampled_clients=clients)


def train(
    strategy: Any, grid: Federation | None = None, *, rounds: int = 6, arrays: ArrayRecord | None = None
) -> Any:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (Flower draws its noise there)
    grid = Federation(NODES, alike) if grid is None else grid
    return strategy.start(grid=grid, initial_arrays=arrays or initial(), num_rounds=rounds)


def seen(strategy: Any, grid: Federation | None = None, **how: Any) -> Audit:
    """An audit of training that was started."""
    training = {name: how.pop(name) for name in ("rounds", "arrays") if name in how}
    audit = audited(strategy, **{"canaries": 40, "rng": 0, **how})
    train(audit, grid, **training)
    return audit


class TestProgram:
    """Digits at 50 clients of which a fifth train in a round; see `tests/programs/flower_app.py`."""

    def audit(self, *words: str) -> Audit:
        return flower_app.main(["--rounds", "30", "--canaries", "150", *words])

    @pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 5))])
    def test_correct_training_is_not_accused(self, seed: int) -> None:
        result = self.audit("--seed", str(seed)).report(
            DpSgd(noise_multiplier=1.0, sample_rate=0.2, steps=30), delta=1e-5, rungs=False
        )
        assert result.refuted is False
        assert result.conformance is not None
        assert result.conformance.p_value > 1e-3
        assert result.contradictions == ()
        assert result.facts["unit"] == "a client, clipped and drawn as a whole"

    def test_half_of_the_noise_is_found(self) -> None:
        found = self.audit("--fault", "half").conformance()
        assert found.p_value <= 1e-6
        assert found.noise == pytest.approx(0.5, abs=0.1)

    def test_a_mean_weighted_by_examples_is_found(self) -> None:
        result = self.audit("--fault", "weighting").report(delta=1e-5, rungs=False)
        assert result.conformance is not None
        assert result.conformance.p_value <= 1e-6
        assert result.conformance.weight > 2
        assert f"canary weight {result.conformance.weight:.2f} (expected 1)" in str(result)
        assert "an included canary weighs" in str(result)
        assert "the mean is weighted by 'num-examples'" in result.contradictions[0]


class Unclipped(DifferentialPrivacyServerSideFixedClipping):
    """Clips to ten times what its noise is made for."""

    def aggregate_train(self, *replies: Any) -> Any:
        self.clipping_norm *= 10
        aggregated = super().aggregate_train(*replies)
        self.clipping_norm /= 10
        return aggregated

    def _add_noise_to_aggregated_arrays(self, *arrays: Any) -> Any:
        self.clipping_norm /= 10
        noisy = super()._add_noise_to_aggregated_arrays(*arrays)
        self.clipping_norm *= 10
        return noisy


class Falling(DifferentialPrivacyServerSideFixedClipping):
    """Halves the clip norm, and Flower's noise with it, in the third round."""

    def configure_train(self, server_round: int, *given: Any) -> Any:
        self.clipping_norm /= 2 if server_round == 3 else 1
        return super().configure_train(server_round, *given)


class FallingLate(DifferentialPrivacyServerSideFixedClipping):
    """Lowers the clip norm in each round, when the replies have come."""

    def aggregate_train(self, *replies: Any) -> Any:
        self.clipping_norm *= 0.8
        return super().aggregate_train(*replies)


class Raised(FallingLate):
    """The same, but clips to twice the norm that its noise is made for."""

    def _add_noise_to_aggregated_arrays(self, *arrays: Any) -> Any:
        self.clipping_norm *= 0.5
        noisy = super()._add_noise_to_aggregated_arrays(*arrays)
        self.clipping_norm *= 2
        return noisy


class TestStrategies:
    def test_noise_for_less_than_a_falling_clip_norm_is_found(self) -> None:
        assert seen(private(Raised)).conformance().weight == pytest.approx(2, rel=0.1)

    @pytest.mark.parametrize("kind", [Falling, FallingLate])
    def test_a_clip_norm_that_falls_is_no_fault(self, kind: Any) -> None:
        result = seen(private(kind)).report(delta=1e-5, rungs=False)
        assert result.conformance is not None
        assert result.conformance.p_value > 1e-3
        assert result.contradictions == ()

    @pytest.mark.parametrize(
        ("kind", "mods", "clipper"),
        [
            (DifferentialPrivacyServerSideFixedClipping, None, True),
            (DifferentialPrivacyClientSideFixedClipping, [fixedclipping_mod], False),
        ],
        ids=["server", "clients"],
    )
    def test_both_places_of_clipping(self, kind: Any, mods: Any, clipper: bool) -> None:
        audit = seen(private(kind), Federation(NODES, alike, mods=mods))
        result = audit.report(delta=1e-5, rungs=False)
        assert result.conformance is not None
        assert result.conformance.p_value > 1e-3
        assert result.contradictions == ()
        assert ("the clipper" in result.facts["exercised"]) is clipper

    def test_a_clip_norm_that_is_not_held_is_found(self) -> None:
        audit = seen(private(Unclipped))
        assert audit.conformance().p_value <= 1e-6
        assert audit.conformance().weight == pytest.approx(10, rel=0.1)
        assert "has a norm of 10 clip norms" in audit.recording().contradictions[0]

    def test_arrays_that_are_clipped_apart_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each of two to the whole norm, which no canary shows: it has one weight."""

        def apart(param1: list[Any], param2: list[Any], clipping_norm: float) -> None:
            for place, current in enumerate(param2):
                change = param1[place] - current
                longest = max(float(np.linalg.norm(change)), clipping_norm)
                param1[place] = current + change * clipping_norm / longest

        monkeypatch.setattr(f"{Unclipped.__base__.__module__}.compute_clip_model_update", apart)
        (found,) = seen(private()).recording().contradictions
        assert "has a norm of 1.41 clip norms, above the limit of 1" in found

    @pytest.mark.parametrize(("kind", "scale"), [(np.float16, 1.0), (np.float32, 1e4)])
    def test_coarse_models_do_not_blur_what_is_read(self, kind: Any, scale: float) -> None:
        audit = seen(private(), arrays=initial(kind, scale), rounds=12)
        assert audit.conformance().p_value > 1e-3

    def test_more_clients_stated_than_reply_are_found(self) -> None:
        """Their noise is made for twice as many as the mean is over."""
        audit = seen(private(clients=2 * NODES))
        assert audit.conformance().p_value <= 1e-6
        assert "a client weighed up to 2 times" in audit.recording().contradictions[0]

    def test_replies_that_are_missing_make_the_others_weigh_more(self) -> None:
        audit = seen(private(), Federation(NODES, alike, reach=lambda number: NODES - 3 * (number % 2)))
        assert "a client weighed up to 1.43 times" in audit.recording().contradictions[0]

    def test_a_client_that_replies_again_is_reported(self) -> None:
        class Retrying(Federation):
            def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
                asked = list(messages)
                return super().send_and_receive([*asked, *asked[:1]])

        audit = seen(private(clients=NODES + 1), Retrying(NODES, alike))
        assert "a client replied 2 times in a round" in audit.recording().contradictions[0]

    def test_large_weights_in_single_precision_do_not_blur_what_is_read(self) -> None:
        """A mean of single precision would be off by more than the noise: canaries make it one of double."""
        audit = seen(private(), arrays=initial(scale=1e5))
        assert audit.conformance().p_value > 1e-3
        assert audit.conformance().noise == pytest.approx(NOISE, rel=0.3)

    def test_rounds_without_a_canary_are_read_as_exactly(self) -> None:
        audit = seen(private(), arrays=initial(scale=1e5), canaries=4, sample_rate=0.2)
        assert audit.conformance().p_value > 1e-3

    def test_the_accountant_of_flower_counts_rounds_and_lets_canaries_pass(self) -> None:
        """It wants equal weights, and as many replies as are stated."""
        accountant = RdpAccountant(
            PrivacyConfig(
                target_delta=1e-5,
                population_size=NODES,
                neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
                sampling_method=SamplingMethod.NO_AMPLIFICATION,
            )
        )
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_evaluate=0.0), NOISE, CLIP, NODES, accountant=accountant
        )
        audit = seen(strategy, rounds=3)
        assert audit.recording().steps == strategy.privacy_spent().num_releases == 3

    @pytest.mark.parametrize(
        ("strategy", "message"),
        [
            (FedAvg, "strategy must be DifferentialPrivacyServerSideFixedClipping or"),
            (
                lambda: DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.1, 50),
                "clips to a norm that depends on what all clients send",
            ),
            (
                lambda: DifferentialPrivacyServerSideFixedClipping(FedAdam(), 1.0, 1.0, 10),
                "FedAdam has a method of its own in place of FedAvg's",
            ),
            (lambda: audited(private(), canaries=5), "strategy must be .* got Audit"),
        ],
    )
    def test_others_are_refused(self, strategy: Callable[[], Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            audited(strategy(), canaries=10)

    def test_of_all_that_average_only_a_mean_is_audited(self) -> None:
        """Whatever Flower adds: what overrides how FedAvg aggregates is refused."""
        kinds = [
            kind for kind in vars(flower).values() if isinstance(kind, type) and issubclass(kind, FedAvg)
        ]
        accepted = {kind.__name__ for kind in kinds if kind.aggregate_train is FedAvg.aggregate_train}
        assert accepted == {"FedAvg", "FedProx"}


class TestRounds:
    def test_the_model_is_trained_as_without_an_audit(self) -> None:
        """Without noise: but for what canaries add to weights of theirs."""
        plain = train(private(noise=0.0), rounds=3).arrays
        audit = audited(private(noise=0.0), canaries=60, rng=0)
        arrays = train(audit, rounds=3).arrays
        changed = 0
        for name in SHAPES:
            apart = arrays[name].numpy() - plain[name].numpy()
            assert arrays[name].numpy().dtype == np.float32
            changed += int((np.abs(apart) > 1e-5).sum())
            assert np.abs(apart).max() == pytest.approx(3 * CLIP / NODES, rel=1e-3)
        assert changed == (audit.recording().bits > 0).sum()

    def test_metrics_are_those_of_real_clients(self) -> None:
        contents: list[int] = []

        def counted(records: Any, key: str) -> Any:
            contents.append(len(records))
            return next(iter(records[-1].metric_records.values()))

        strategy = private(train_metrics_aggr_fn=counted)
        result = train(audited(strategy, canaries=30), rounds=2)
        assert contents == [NODES, NODES]
        assert strategy.strategy.train_metrics_aggr_fn is counted
        assert strategy.num_sampled_clients == NODES
        plain = train(private(), rounds=2)
        assert train(audited(private(), canaries=30), rounds=2).train_metrics_clientapp == (
            plain.train_metrics_clientapp
        )
        assert set(result.train_metrics_clientapp) == {1, 2}

    def test_how_many_reply_says_nothing_of_the_bits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Excluded canaries reply too: what the mean and the noise are divided by is the same for all bits."""
        counts = []
        for seed in range(3):
            sizes: list[int] = []
            strategy = private()
            aggregate = strategy.aggregate_train
            monkeypatch.setattr(
                strategy,
                "aggregate_train",
                lambda number, replies, sizes=sizes, aggregate=aggregate: (
                    sizes.append(len(replies)) or aggregate(number, replies)
                ),
            )
            seen(strategy, rounds=2, rng=seed)
            counts.append(sizes)
        assert counts == [[NODES + 40] * 2] * 3

    def test_a_round_that_fails_shows_nothing(self) -> None:
        """Flower gives up a round in which a client fails; the next one is read as if it had not been."""

        class Failing(Federation):
            def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
                asked = list(messages)
                replies = super().send_and_receive(asked)
                if replies and self.round % 3 == 2:
                    replies[0] = Message(Error(code=0, reason="no"), reply_to=asked[0])
                return replies

        audit = seen(private(), Failing(NODES, alike), rounds=9)
        assert audit.recording().steps == 6
        assert audit.conformance().p_value > 1e-3

    def test_clients_are_weighed_as_the_heaviest_or_as_said(self) -> None:
        def uneven(node: int, *rest: Any) -> Any:
            arrays, metrics = alike(node, *rest)
            return arrays, {**metrics, "num-examples": 11 if node == 1 else 1}

        grid = Federation(NODES, uneven)
        heaviest = seen(private(), grid)
        assert heaviest.conformance().weight == pytest.approx(11 / 2, rel=0.1)
        said = seen(private(), grid, num_examples=2)
        assert said.conformance().weight == pytest.approx(1, abs=0.5)
        for audit in (heaviest, said):
            assert "a client weighed up to 5.5 times" in audit.recording().contradictions[0]

    def test_an_audit_ends_where_fewer_clients_are_sampled(self) -> None:
        class Leaving(Federation):
            def get_node_ids(self) -> Any:
                return range(1, self.nodes + 1 + 5 * (self.round >= 4))

        strategy = private(fraction_train=0.01, min_train_nodes=NODES)
        audit = seen(strategy, Leaving(NODES, alike), rounds=6)
        recording = audit.recording()
        assert recording.steps == 4
        assert recording.ended == (
            "from round 5 on: it samples 0.667 of the clients, the first one 1; give sample_rate"
        )
        given = seen(
            private(fraction_train=0.01, min_train_nodes=NODES),
            Leaving(NODES, alike),
            rounds=6,
            sample_rate=0.5,
        )
        assert given.recording().steps == 6
        assert given.recording().contradictions == (
            "1 of the clients were sampled in a round, where sample_rate is 0.5",
        )

    def test_canaries_take_part_as_often_as_clients(self) -> None:
        audit = seen(private(clients=5, fraction_train=0.5), rounds=16)
        assert audit.recording().sample_rate == 0.5
        assert audit.conformance().p_value > 1e-3

    def test_misuse_is_one_line(self) -> None:
        with pytest.raises(InputError, match="no round of training was seen"):
            audited(private(), canaries=10).bound()
        with pytest.raises(InputError, match="canaries must be at most the number of weights, 630, got 900"):
            seen(private(), canaries=900)
        with pytest.raises(InputError, match="sample_rate must be above 0"):
            audited(private(), canaries=10, sample_rate=0)
        with pytest.raises(InputError, match="num_examples must be positive"):
            audited(private(), canaries=10, num_examples=0)


@pytest.mark.full
def test_bounds_of_correct_training_hold() -> None:
    """60 audits of 3 rounds at 95%: 11 or more are too high with probability 4e-4 at most, if bounds hold."""
    true = DpSgd(noise_multiplier=2.0, sample_rate=1.0, steps=3).epsilon_at(1e-5)
    found = [
        seen(private(noise=2.0), rounds=3, canaries=200, rng=seed).bound(1e-5).epsilon for seed in range(60)
    ]
    assert sum(one > true for one in found) <= 10
    assert max(found) > 0.3
