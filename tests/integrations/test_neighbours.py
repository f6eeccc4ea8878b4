"""Neighbouring data sets: programs that tell them apart are found, and correct ones are not accused."""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate, random_split

from canaria import InputError
from canaria.integrations.opacus import check_neighbours
from tests.integrations.digits import digits
from tests.integrations.programs import Correct, Ghost, small

torch.set_num_threads(1)
DATA = digits(101)
Program = Callable[[Any], None]


def whats(found: Any) -> list[tuple[str, str]]:
    return [(difference.neighbour, difference.what) for difference in found.differences]


class Engine:
    """The usual call of make_private, on a batch size; features are made finite unless told otherwise."""

    def __init__(self, *, finite: bool = True, **options: Any) -> None:
        self.finite, self.options = finite, options

    def __call__(self, data: Any) -> None:
        model = small()
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=10),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            **self.options,
        )
        model, optimizer, loader = made[0], made[1], made[-1]
        for features, labels in loader:
            optimizer.zero_grad()
            answers = model(torch.nan_to_num(features) if self.finite else features)
            nn.functional.cross_entropy(answers, labels).backward()
            optimizer.step()


class WithDropout(nn.Module):
    """One that canaria switches off."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dropout, self.last = nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, 10)

    def forward(self, features: Tensor) -> Tensor:
        return self.last(self.dropout(self.first(features)))


class WithNoise(WithDropout):
    """Randomness of its own."""

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.first(features)
        return self.last(hidden * torch.bernoulli(torch.full_like(hidden, 0.5)))


class Scheduled(Correct):
    """The learning rate falls after every step."""

    def one_pass(self, batches: Iterable[Any]) -> None:
        schedule = StepLR(self.optimizer, 1, 0.5)
        for batch in batches:
            self.one_step(batch)
            schedule.step()


class Evaluated(Correct):
    """Looks at its own data by an ordinary loader after every step."""

    def prepared(self, data: Any) -> Any:
        self.data = data
        return data

    def one_step(self, batch: Any) -> None:
        super().one_step(batch)
        with torch.no_grad():
            for features, _ in DataLoader(self.data, batch_size=40, shuffle=True):
                self.model(features)


class FixedSteps(Correct):
    """So many steps, whatever the passes."""

    def one_pass(self, batches: Iterable[Any]) -> None:
        drawn, made = iter(batches), 0
        while made < 25:
            try:
                batch = next(drawn)
            except StopIteration:
                drawn = iter(batches)
                continue
            self.one_step(batch)
            made += 1


class Peeking(Correct):
    """Looks at one batch before it trains."""

    def one_pass(self, batches: Iterable[Any]) -> None:
        next(iter(batches))
        super().one_pass(batches)


class Filtering(Correct):
    """Leaves out rows that are not finite, instead of mending their gradients."""

    def prepared(self, data: Any) -> Any:
        return [data[number] for number in range(len(data)) if data[number][0].isfinite().all()]

    def mend(self) -> None:
        """Nothing to mend."""


class Careless(Correct):
    """Goes on after errors; ours must end it all the same."""

    def one_pass(self, batches: Iterable[Any]) -> None:
        for _ in range(5):
            try:
                super().one_pass(batches)
            except Exception:
                continue


class Dictionaries(Correct):
    """Batches that are dictionaries."""

    def one_step(self, batch: Any) -> None:
        super().one_step((batch["features"], batch["label"]))


class Rows(Dataset[Any]):
    """A data set of somebody's own."""

    classes = 10

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> dict[str, Any]:
        if not 0 <= number < 60:
            raise IndexError(number)
        features, label = DATA[number]
        return {"features": features, "label": label}


LISTED = [(DATA[number][0].numpy(), int(DATA[number][1])) for number in range(30)]


class HalfPrecision(Correct):
    """Gradients in bfloat16, whose norms are rounded."""

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            answers = self.model(features)
        return nn.functional.cross_entropy(answers.float(), labels)


@pytest.mark.parametrize(
    ("program", "data"),
    [
        pytest.param(Correct(), DATA, id="hooks"),
        pytest.param(Ghost(), DATA, id="ghost clipping"),
        pytest.param(Correct(physical=4), DATA, id="virtual steps"),
        pytest.param(Ghost(physical=4), DATA, id="virtual steps and ghost clipping"),
        pytest.param(Correct(reduction="sum"), DATA, id="sums of losses"),
        pytest.param(Correct(base=torch.optim.Adam), DATA, id="Adam"),
        pytest.param(Correct(rate=0.5), DATA, id="short passes"),
        pytest.param(Correct(num_workers=1, persistent_workers=True, timeout=9), DATA, id="workers"),
        pytest.param(Correct(collate_fn=lambda rows: default_collate(rows[::-1])), DATA, id="collate_fn"),
        pytest.param(Correct(make=WithDropout), DATA, id="dropout"),
        pytest.param(Dictionaries(), Rows(), id="dictionaries"),
        pytest.param(Correct(), LISTED, id="a list of arrays"),
        pytest.param(Correct(), LISTED[:4], id="four rows"),
        pytest.param(Scheduled(), DATA, id="learning rates"),
        pytest.param(Evaluated(), DATA, id="evaluation"),
        pytest.param(FixedSteps(), DATA, id="fixed steps"),
        pytest.param(Peeking(), DATA, id="a look at a batch"),
        pytest.param(Filtering(), DATA, id="broken rows left out"),
        pytest.param(Careless(), DATA, id="errors swallowed"),
        pytest.param(HalfPrecision(), DATA, id="half precision"),
    ],
)
def test_a_correct_program_is_not_accused(program: Program, data: Any) -> None:
    found = check_neighbours(program, data)
    assert found.holds, str(found)
    assert not found.random
    assert found.moved == pytest.approx(1, abs=0.01)
    assert str(found).startswith("Neighbouring data sets look alike: ")
    assert len(found.compared) == 3


@pytest.mark.parametrize("row", [0, 7, 100])
def test_any_row_may_be_removed_and_any_seed_used(row: int) -> None:
    assert check_neighbours(Correct(), DATA, row=row, steps=9, rng=row).holds


def test_the_row_is_the_last_or_drawn() -> None:
    assert check_neighbours(Correct(), DATA).row == 100
    drawn = {check_neighbours(Correct(), DATA, rng=seed).row for seed in range(4)}
    assert len(drawn) > 1


def test_the_usual_call_of_opacus_depends_on_the_length() -> None:
    """101 rows in batches of 10: 11 batches of 9 rows; 100 rows: 10 batches of 10."""
    found = check_neighbours(Engine(), DATA, row=7)
    assert whats(found) == [
        ("without row 7", what) for what in ("sample rate", "batches", "expected batch size")
    ]
    assert [(one.there, one.here) for one in found.differences[1:]] == [(10, 11), (10, 9)]
    assert "without row 7: expected batch size 10, with it 9: " in str(found)
    assert str(found).startswith("Neighbouring data sets can be told apart")
    assert not found.holds


def test_a_length_at_which_one_row_does_not_matter_is_found_by_a_chain() -> None:
    """105 rows and 104: 11 batches of 9 rows. Half of them: 6 of 8."""
    found = check_neighbours(Engine(), digits(105))
    assert {one.neighbour for one in found.differences} == {"with half of the rows"}
    assert "One removed row after the other leads there" in str(found)


class NaNs(Correct):
    def mend(self) -> None:
        """Forgotten."""


class GhostNaNs(Ghost):
    def one_step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.criterion(self.model(batch[0]), batch[1]).backward()
        self.optimizer.step()


@pytest.mark.parametrize("program", [NaNs(), GhostNaNs()], ids=["hooks", "ghost"])
def test_clipping_does_not_bound_nan(program: Program) -> None:
    (difference,) = check_neighbours(program, DATA, row=7).differences
    assert (difference.neighbour, difference.what, difference.step) == ("with row 7 NaN", "clipped sum", 2)
    assert "not finite" in difference.text


def test_rows_without_floating_point_numbers_cannot_be_nan() -> None:
    class Counts(NaNs):
        def loss(self, features: Tensor, labels: Tensor) -> Tensor:
            return super().loss(features.float(), labels)

    data = TensorDataset((16 * DATA.tensors[0]).long(), DATA.tensors[1])
    found = check_neighbours(Counts(), data)
    assert found.holds
    assert found.compared == ("without row 100", "with half of the rows")


class Skipping(Correct):
    def __init__(self, fewest: int) -> None:
        super().__init__()
        self.fewest = fewest

    def one_step(self, batch: Any) -> None:
        if len(batch[1]) >= self.fewest:
            super().one_step(batch)


def test_a_loop_that_skips_empty_batches() -> None:
    (difference,) = check_neighbours(Skipping(1), DATA, row=7).differences
    assert (difference.neighbour, difference.what) == ("without row 7", "steps")
    assert (difference.there, difference.here) == (3, 4)
    assert "3 steps (none for batch 3), with it 4" in str(difference)


def test_a_loop_that_skips_small_batches() -> None:
    (difference,) = check_neighbours(Skipping(2), DATA, row=7).differences
    assert str(difference).startswith("as given: batch 3 made no step, unlike others.")


class SkippingLosses(Correct):
    def one_step(self, batch: Any) -> None:
        with torch.no_grad():
            finite = len(batch[1]) == 0 or bool(self.loss(*batch).isfinite())
        if finite:
            super().one_step(batch)


def test_a_loop_that_skips_losses_that_are_not_finite() -> None:
    assert whats(check_neighbours(SkippingLosses(), DATA, row=7)) == [("with row 7 NaN", "steps")]


class Raising(Correct):
    def one_step(self, batch: Any) -> None:
        if len(batch[1]) == 0:
            raise ValueError("no rows\nin this batch")
        super().one_step(batch)


def test_an_exception_on_a_neighbour_is_reported() -> None:
    (difference,) = check_neighbours(Raising(), DATA, row=7).differences
    assert (difference.neighbour, difference.what) == ("without row 7", "exception")
    assert difference.there == "ValueError: no rows in this batch"


def test_an_exception_on_the_data_as_given_is_raised() -> None:
    def fail(data: Any) -> NoReturn:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        check_neighbours(fail, DATA)
    assert raised.value.__notes__ == ["raised on the data as given, with batches of 8, 9, 1, 9 rows"]


class ClippedMean(DPOptimizer):
    """Clips the mean of a batch, and not its rows."""

    def clip_and_accumulate(self) -> None:
        rows = len(self.grad_samples[0])
        means = [gradients.sum(dim=0) / max(rows, 1) for gradients in self.grad_samples]
        norm = float(torch.stack([mean.norm() for mean in means]).norm())
        for parameter, mean in zip(self.params, means, strict=True):
            parameter.summed_grad = mean * rows * min(1.0, 1 / (norm + 1e-6))


class Unclipped(DPOptimizer):
    def clip_and_accumulate(self) -> None:
        for parameter, gradients in zip(self.params, self.grad_samples, strict=True):
            parameter.summed_grad = gradients.sum(dim=0)


@pytest.mark.parametrize("kind", [ClippedMean, Unclipped])
def test_a_row_that_moves_the_sum_by_more_than_the_clip_norm(kind: type[DPOptimizer]) -> None:
    found = check_neighbours(Correct(kind=kind), DATA, row=7)
    assert ("without row 7", "clipped sum") in whats(found)
    assert found.moved > 1.1


class Accumulating(Correct):
    def one_pass(self, batches: Iterable[Any]) -> None:
        for number, (features, labels) in enumerate(batches):
            self.loss(torch.nan_to_num(features), labels).backward()
            if number % 2:
                self.optimizer.step()
                self.optimizer.zero_grad()


def test_batches_that_are_added_up_hold_a_row_twice() -> None:
    difference, _ = check_neighbours(Accumulating(), DATA, row=7).differences
    assert difference.there == pytest.approx(2, abs=0.01)
    assert "BatchMemoryManager" in difference.text


class Scaled(Correct):
    """Divides by the largest value of the data, which most rows do not change."""

    def prepared(self, data: Any) -> Any:
        features, labels = data.tensors
        return TensorDataset(features / torch.nan_to_num(features).max(), labels)


def test_what_most_rows_do_not_change_is_found_with_half_of_them() -> None:
    features, labels = DATA.tensors
    large = features.clone()
    large[90] *= 3
    (difference,) = check_neighbours(Scaled(), TensorDataset(large, labels), row=7).differences
    assert (difference.neighbour, difference.what) == ("with half of the rows", "clipped sum")
    assert "One removed row after the other" in difference.text


class Slowed(Correct):
    """Its learning rate depends on the number of rows, so little that one row is taken for rounding."""

    def prepared(self, data: Any) -> Any:
        self.speed = 1 - 1e-6 * len(data)
        return data

    def one_pass(self, batches: Iterable[Any]) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.speed
        super().one_pass(batches)


def test_a_learning_rate_that_depends_on_the_length_is_found_with_half_of_the_rows() -> None:
    (difference,) = check_neighbours(Slowed(), DATA, row=7).differences
    assert (difference.neighbour, difference.what) == ("with half of the rows", "parameters")


class Centred(Correct):
    """Subtracts the mean of the data, which nothing protects."""

    def prepared(self, data: Any) -> Any:
        self.mean = torch.nan_to_num(data.tensors[0]).mean(dim=0)
        return data

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return super().loss(features - 5 * self.mean, labels)


def test_a_row_that_acts_on_the_gradients_of_others() -> None:
    assert {what for _, what in whats(check_neighbours(Centred(), DATA))} == {"clipped sum"}


class RateByLoss(Correct):
    def one_step(self, batch: Any) -> None:
        super().one_step(batch)
        with torch.no_grad():
            loss = self.loss(torch.nan_to_num(batch[0]), batch[1]) if len(batch[1]) else 99.0
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1 * float(loss)


def test_a_learning_rate_that_follows_the_loss() -> None:
    found = check_neighbours(RateByLoss(), DATA, row=7)
    assert ("without row 7", "parameters") in whats(found)


class Watching(Correct):
    """Does something by its training loss after every pass, which nothing protects."""

    def __init__(self, act: str, limit: float, speed: float = 0.1, **options: Any) -> None:
        super().__init__(passes=200, **options)
        self.act, self.limit, self.speed = act, limit, speed

    def prepared(self, data: Any) -> Any:
        self.best, self.worse = 1e9, 0
        for group in self.optimizer.param_groups:
            group["lr"] = self.speed
        return data

    def one_pass(self, batches: Iterable[Any]) -> None:
        losses = []
        for features, labels in batches:
            self.one_step((features, labels))
            with torch.no_grad():
                losses += [float(self.loss(torch.nan_to_num(features), labels))] * bool(len(labels))
        if losses:
            self.decide(sum(losses) / len(losses))

    def decide(self, loss: float) -> None:
        self.worse = 0 if loss < self.best else self.worse + 1
        self.best = min(self.best, loss)
        if self.act == "threshold" and loss < self.limit:
            raise StoppedError
        if self.act == "patience" and self.worse >= self.limit:
            raise StoppedError
        if self.act == "slower" and self.worse >= self.limit:
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.1
        if self.act == "quieter" and loss < self.limit:
            self.optimizer.noise_multiplier = 0.5

    def __call__(self, data: Any) -> None:
        with suppress(StoppedError):
            super().__call__(data)


class StoppedError(Exception):
    """Training has come to its end."""


@pytest.mark.parametrize("row", [0, 7, 100])
@pytest.mark.parametrize(
    ("act", "limit", "options", "what"),
    [
        ("threshold", 0.5, {}, "stop"),
        ("threshold", 0.1, {"speed": 0.5}, "stop"),
        ("threshold", 0.5, {"base": torch.optim.Adam, "speed": 1e-3}, "stop"),
        ("patience", 1, {}, "stop"),
        ("patience", 10, {}, "stop"),
        ("patience", 3, {"base": torch.optim.Adam, "speed": 1e-3}, "stop"),
        ("patience", 3, {"physical": 4}, "stop"),
        ("slower", 3, {}, "parameters"),
        ("quieter", 1.0, {}, "noise multiplier"),
    ],
)
def test_a_training_loss_that_decides_is_found(
    row: int, act: str, limit: float, options: dict[str, Any], what: str
) -> None:
    found = check_neighbours(Watching(act, limit, **options), DATA, row=row)
    assert whats(found) == [(f"with every row like row {row}", what)]


def test_the_number_of_steps_that_a_loss_decides_is_said() -> None:
    (difference,) = check_neighbours(Watching("patience", 3), DATA, row=7).differences
    assert difference.here == 6 < difference.there  # which differs between processors
    assert (
        f"{difference.there} steps in passes of one batch, as given 6, though every step released the same"
        in str(difference)
    )


def test_a_loss_that_decides_nothing_is_not_accused() -> None:
    found = check_neighbours(Watching("nothing", 0.0), DATA)
    assert found.holds
    assert found.passes == 32
    assert "did not depend on the rows in 32 passes that were cut to one batch" in str(found)


class OnlyMixed(Correct):
    """Cannot be run if all rows have one label."""

    def prepared(self, data: Any) -> Any:
        if len(data.tensors[1].unique()) == 1:
            raise ValueError("one class")
        return data


class FirstWeights(Correct):
    """Its first weights depend on the labels."""

    def prepared(self, data: Any) -> Any:
        torch.manual_seed(len(data.tensors[1].unique()) > 1)
        nn.init.normal_(self.optimizer.params[0])
        return data


@pytest.mark.parametrize(
    ("program", "options", "why"),
    [
        (OnlyMixed(), {}, "train raises ValueError: one class with every row like row 100"),
        (FirstWeights(), {}, "the initial weights differ"),
        (Correct(), {"passes": 0}, "passes is 0"),
    ],
    ids=["raises", "first weights", "left out"],
)
def test_a_number_of_steps_that_was_not_compared_is_said(
    program: Program, options: dict[str, int], why: str
) -> None:
    found = check_neighbours(program, DATA, **options)
    assert found.holds
    assert f"Not tested: whether the number of steps depends on the rows ({why}" in str(found)


class NoisierByLength(Correct):
    def prepared(self, data: Any) -> Any:
        self.optimizer.noise_multiplier = len(data) / 100
        self.optimizer.max_grad_norm = 100 / len(data)
        return data


def test_noise_and_clip_norm_that_depend_on_the_length() -> None:
    """And sums that are clipped otherwise differ, too."""
    found = check_neighbours(NoisierByLength(), DATA)
    assert [what for _, what in whats(found)] == ["noise multiplier", "clip norm", "clipped sum"]


class ToldTheLength(Correct):
    def prepared(self, data: Any) -> Any:
        accountant = PrivacyEngine(accountant="rdp").accountant
        self.optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=10 / len(data)))
        return data


def test_an_accountant_that_is_told_the_length() -> None:
    assert whats(check_neighbours(ToldTheLength(), DATA)) == [("without row 100", "accountant")]


def test_randomness_that_runs_cannot_share_is_left_out_and_said() -> None:
    found = check_neighbours(Correct(make=WithNoise), DATA)
    assert found.holds
    assert found.random
    assert "Not compared: sums in which the row is one of several" in str(found)
    wrong = check_neighbours(Correct(make=WithNoise, kind=Unclipped), DATA)
    assert not wrong.holds


class Padded(Correct):
    """Repeats rows until there are 101."""

    def prepared(self, data: Any) -> Any:
        return [data[number % len(data)] for number in range(101)]


def test_rows_that_the_data_set_does_not_have() -> None:
    assert whats(check_neighbours(Padded(), DATA)) == [("without row 100", "rows")]


class Ahead(Correct):
    def one_pass(self, batches: Iterable[Any]) -> None:
        last = None
        for batch in batches:
            if last is not None:
                self.one_step(last)
            last = batch


class LookingFirst(Correct):
    """A whole pass over the private loader before the first step."""

    def one_pass(self, batches: Iterable[Any]) -> None:
        with torch.no_grad():
            for features, _ in batches:
                self.model(features)
        super().one_pass(batches)


def test_a_pass_without_steps_needs_more_of_them() -> None:
    with pytest.raises(InputError, match="more steps"):
        check_neighbours(LookingFirst(), DATA)
    assert check_neighbours(LookingFirst(), DATA, steps=14).steps == 4


class InPlace(Correct):
    """Changes the data that it is given."""

    def prepared(self, data: Any) -> Any:
        features = data.tensors[0] if isinstance(data, TensorDataset) else data[0][0]
        features.mul_(0.5)
        return data


def test_data_that_the_program_changes_are_copied_or_the_change_is_noticed() -> None:
    before = DATA.tensors[0].clone()
    assert check_neighbours(InPlace(), DATA).holds
    assert torch.equal(DATA.tensors[0], before)
    rows = [(torch.rand(64), torch.tensor(number % 10)) for number in range(5)]
    with pytest.raises(InputError, match=r"differ \(clipped sum\)"):
        check_neighbours(InPlace(), rows)


class Split(Correct):
    def prepared(self, data: Any) -> Any:
        return random_split(data, [0.8, 0.2])[0]


class Classes(Dictionaries):
    def prepared(self, data: Any) -> Any:
        assert data.classes == 10
        return data


class OwnNoise(DPOptimizer):
    def add_noise(self) -> None:
        for parameter in self.params:
            parameter.grad = parameter.summed_grad + torch.randn_like(parameter)


class Continued(Correct):
    """Goes on with the model of the last call."""

    def __init__(self) -> None:
        model = small()
        super().__init__(make=lambda: nn.Sequential(*model.children()))


ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.1,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 5.0,
}


@pytest.mark.parametrize(
    ("program", "data", "message"),
    [
        pytest.param(lambda data: None, DATA, "made no step", id="no training"),
        pytest.param(Engine(poisson_sampling=False), DATA, "no Poisson sampler", id="another sampler"),
        pytest.param(Engine(**ADAPTIVE), DATA, "clips adaptively", id="adaptive clipping"),
        pytest.param(Ahead(), DATA, "draws batches before", id="batches fetched ahead"),
        pytest.param(Split(), DATA, "samples from 81 rows", id="split inside"),
        pytest.param(Classes(), Rows(), "reads 'classes'", id="an attribute of the data"),
        pytest.param(Correct(kind=OwnNoise), DATA, "OwnNoise adds noise without", id="noise of its own"),
        pytest.param(Continued(), DATA, "two runs of train on the same data differ", id="state kept"),
        pytest.param(
            NaNs(),
            TensorDataset(torch.full((20, 64), torch.nan), torch.zeros(20).long()),
            "as given",
            id="NaN",
        ),
        pytest.param(Correct(), DATA.tensors, "columns of equal", id="columns"),
        pytest.param(Correct(), {"rows": 3}, "got dict", id="no rows"),
        pytest.param(Correct(), LISTED[:3], "at least 4 rows", id="three rows"),
    ],
)
def test_what_cannot_be_followed_is_said(program: Program, data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_neighbours(program, data)


@pytest.mark.parametrize(("name", "value"), [("row", 101), ("row", -1), ("steps", 2)])
def test_arguments_are_checked(name: str, value: int) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(InputError, match=name):
        check_neighbours(Correct(), DATA, **options)


def states() -> list[Any]:
    numpy = np.random.get_state()  # noqa: NPY002
    return [random.getstate(), numpy[1].tolist(), numpy[2:], torch.get_rng_state().tolist()]


def patched() -> list[Any]:
    return [
        UniformWithReplacementSampler.__iter__,
        DataLoader.__iter__,
        vars(DPDataLoader).get("__iter__"),
        DPOptimizer.scale_grad,
        *(kind.add_noise for kind in (DPOptimizer, DPOptimizerFastGradientClipping, AdaClipDPOptimizer)),
        nn.functional.dropout,
        nn.functional.alpha_dropout,
    ]


class Interrupted(Correct):
    def one_step(self, batch: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("program", "raised"),
    [(Correct(), None), (Raising(), None), (Interrupted(), KeyboardInterrupt), (Split(), InputError)],
    ids=["correct", "raises", "interrupted", "refused"],
)
def test_everything_is_as_it_was_afterwards(program: Program, raised: type[BaseException] | None) -> None:
    before = [*patched(), *states()]
    if raised is None:
        check_neighbours(program, DATA)
    else:
        with pytest.raises(raised):
            check_neighbours(program, DATA)
    assert [*patched(), *states()] == before


def test_noise_is_frozen_and_releases_are_those_of_the_first_run() -> None:
    """All runs end with the same parameters, though the row is missing, or NaN, in some."""
    ends: list[list[Tensor]] = []

    class Remembered(Correct):
        def one_step(self, batch: Any) -> None:
            super().one_step(batch)
            if len(ends) == 0 or ends[-1][0] is not self.optimizer.params[0]:
                ends.append(self.optimizer.params)

    assert check_neighbours(Remembered(), DATA).holds
    assert len(ends) == 8  # three more in passes of one batch
    for end in ends[1:4]:
        for mine, first in zip(end, ends[0], strict=True):
            assert torch.equal(mine, first)
