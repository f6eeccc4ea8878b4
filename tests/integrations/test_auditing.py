"""Programs that make themselves private are audited without a change to them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from opacus import GradSampleModule, PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from canaria import InputError
from canaria.integrations.opacus import auditing
from canaria.integrations.opacus._accountants import accountant_of
from canaria.training import Watch
from tests.cli.command import canaria, installed
from tests.integrations.digits import digits
from tests.integrations.programs import Ghost
from tests.integrations.samplers import Poisson, Shuffled
from tests.programs.faults import halve_noise

ROWS, BATCH, PASSES = 600, 60, 2


def _small() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def _train(model: Any, optimizer: Any, loader: Any, criterion: Any = nn.functional.cross_entropy) -> None:
    for _ in range(PASSES):
        for rows, labels in loader:
            criterion(model(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()


def _asked(**how: Any) -> tuple[Any, ...]:
    model = _small()
    return PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(digits(ROWS), batch_size=BATCH),
        max_grad_norm=1.0,
        **{"noise_multiplier": 1.0, **how},
    )


def by_the_engine() -> None:
    _train(*_asked())


def by_target() -> None:
    model = _small()
    _train(
        *PrivacyEngine(accountant="rdp").make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.Adam(model.parameters()),
            data_loader=DataLoader(digits(ROWS), batch_size=BATCH),
            max_grad_norm=1.0,
            target_epsilon=4.0,
            target_delta=1e-4,
            epochs=PASSES,
        )
    )


def by_ghost_clipping() -> None:
    model, optimizer, criterion, loader = _asked(grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss())
    _train(model, optimizer, loader, criterion)


def without_a_wrapper() -> None:
    model = _small()
    _, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(digits(ROWS), batch_size=BATCH),
        max_grad_norm=1.0,
        noise_multiplier=1.0,
        wrap_model=False,
    )
    _train(model, optimizer, loader)


def by_hand() -> None:
    model = GradSampleModule(_small())
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=BATCH,
    )
    _train(model, optimizer, DPDataLoader(digits(ROWS), sample_rate=BATCH / ROWS))


def by_accelerate() -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(*_asked())
    for _ in range(PASSES):
        for rows, labels in loader:
            accelerator.backward(nn.functional.cross_entropy(model(rows), labels))
            optimizer.step()
            optimizer.zero_grad()


PROGRAMS = [by_the_engine, by_target, by_ghost_clipping, without_a_wrapper, by_hand, by_accelerate]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_audited_as_it_is(program: Callable[[], None]) -> None:
    torch.manual_seed(0)
    with auditing(1000, rng=0) as audit:
        program()
    (seen,) = audit.audits
    assert seen.steps == PASSES * ROWS / BATCH
    result = audit.report(delta=1e-4, rungs=False)
    assert result.refuted is (None if program is by_hand else False)
    assert result.conformance is not None
    assert result.conformance.p_value > 1e-3
    assert result.contradictions == ()
    assert audit.refused == []


def test_the_claim_is_what_the_program_asked_for() -> None:
    with auditing(500, rng=0) as audit:
        by_target()
    assert (audit.report(rungs=False).claimed, audit.report(rungs=False).bound.delta) == (4.0, 1e-4)
    assert audit.report(delta=1e-5, rungs=False).claimed == pytest.approx(4.9, abs=0.5)
    assert audit.report(claimed=2.0, delta=1e-5, rungs=False).claimed == 2.0


def test_random_numbers_of_the_program_stay_as_they_are() -> None:
    def drawn() -> list[float]:
        torch.manual_seed(0)
        by_the_engine()
        return torch.rand(3).tolist()

    alone = drawn()
    with auditing(500, rng=1):
        audited = drawn()
    assert audited == alone


@pytest.mark.parametrize("fault", ["half", "clipping"])
def test_faults_of_the_program_are_found(fault: str) -> None:
    def broken() -> None:
        model, optimizer, loader = _asked()
        if fault == "half":
            halve_noise(optimizer)
        else:
            optimizer.max_grad_norm = 4.0
            optimizer.noise_multiplier = 0.25
        _train(model, optimizer, loader)

    torch.manual_seed(0)
    with auditing(1000, rng=0) as audit:
        broken()
    found = audit.report(delta=1e-5, rungs=False)
    if fault == "half":
        assert found.conformance is not None
        assert found.conformance.p_value < 1e-6
    assert found.alarming or found.claimed > 20


class TestWhatRowsCouldAdd:
    """Canaries that join the sum are not clipped, but rows are: they add at most a clip norm each."""

    @pytest.mark.parametrize("physical", [None, 16])
    @pytest.mark.parametrize("clipped", [True, False])
    def test_a_sum_that_is_larger_is_named(self, clipped: bool, physical: int | None) -> None:
        def program() -> None:
            model, optimizer, loader = _asked()
            if not clipped:
                own = optimizer.clip_and_accumulate

                def unclipped() -> None:
                    optimizer.max_grad_norm = 1e9
                    own()
                    optimizer.max_grad_norm = 1.0

                optimizer.clip_and_accumulate = unclipped
            with BatchMemoryManager(
                data_loader=loader, max_physical_batch_size=physical or ROWS, optimizer=optimizer
            ) as batches:
                _train(
                    model,
                    optimizer,
                    batches,
                    lambda out, labels: 50 * nn.functional.cross_entropy(out, labels),
                )

        torch.manual_seed(0)
        with auditing(500, rng=0) as audit:
            program()
        named = audit.report(delta=1e-5, rungs=False).contradictions
        assert [("gradients are not clipped" in one) for one in named] == ([] if clipped else [True])

    def test_rows_that_all_agree_add_as_much_as_they_may(self) -> None:
        """The same row over and over, far above the clip norm: the sum is exactly the most that may be."""
        rows = TensorDataset(torch.ones(ROWS, 64), torch.zeros(ROWS, dtype=torch.long))
        model = _small()
        with auditing(500, rng=0) as audit:
            model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
                data_loader=DataLoader(rows, batch_size=BATCH),
                noise_multiplier=1.0,
                max_grad_norm=0.01,
            )
            _train(model, optimizer, loader)
        assert audit.report(delta=1e-5, rungs=False).contradictions == ()


def test_several_trainings_have_several_reports() -> None:
    with auditing(200, rng=0) as audit:
        by_the_engine()
        by_hand()
    with pytest.raises(InputError, match=r"made 2 trainings: ask for reports\(\)"):
        audit.report(delta=1e-5)
    assert len({result.bound.evidence for result in audit.reports(delta=1e-5, rungs=False)}) == 2
    assert audit.audits[0].recording().seed != audit.audits[1].recording().seed


def test_what_cannot_be_audited_goes_on_and_says_why() -> None:
    with auditing(200) as audit:
        _train(*_asked(poisson_sampling=False))
    with pytest.raises(InputError, match="without a data loader that samples by Poisson"):
        audit.report(delta=1e-5)
    with auditing(10**6) as audit:
        by_the_engine()
    with pytest.raises(InputError, match="could not be audited: canaries need 1000000 coordinates"):
        audit.report(delta=1e-5)
    with auditing() as audit:
        pass
    with pytest.raises(InputError, match="made nothing private with Opacus"):
        audit.report(delta=1e-5)
    with auditing(200) as audit:
        _asked()
    with pytest.raises(InputError, match="but no step with it"):
        audit.report(delta=1e-5)
    with auditing(200) as audit:
        by_the_engine()
    with pytest.raises(InputError, match="delta must be given"):
        audit.report()


def test_constructors_are_as_they_were_afterwards() -> None:
    before = DPOptimizer.__init__, DPDataLoader.__init__, PrivacyEngine.make_private_with_epsilon
    with pytest.raises(KeyError), auditing():
        raise KeyError
    assert before == (
        DPOptimizer.__init__,
        DPDataLoader.__init__,
        PrivacyEngine.make_private_with_epsilon,
    )


def test_the_noise_is_watched() -> None:
    watch = Watch(on_alarm="warn")
    with auditing(200, rng=0, watch=watch):
        by_the_engine()
    assert watch.reading().steps == PASSES * ROWS / BATCH


SCRIPT = """
import argparse
import helper_of_script
import tests.integrations.test_auditing as programs
parser = argparse.ArgumentParser()
parser.add_argument("--program", default="by_target")
getattr(programs, parser.parse_args().program)()
print("trained", helper_of_script.__name__, __name__)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "helper_of_script.py").write_text("")
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path / "train.py")


def test_on_the_command_line(script: str, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    ran = canaria("audit-program", script, "--canaries", "500", "-o", str(out))
    assert ran.code == 0
    assert "trained helper_of_script __main__" in ran.out
    assert "the claim ε = 4 is not refuted" in ran.out
    assert json.loads(out.read_text())["name"] == "train.py"
    assert canaria("verify", str(out)).code == 0
    asked = canaria("audit-program", script, "--json", "--", "--program", "by_the_engine")
    told = json.loads(asked.out.splitlines()[-1])
    assert told["delta"] == 1e-5
    assert told["facts"]["program"].endswith("train.py --program by_the_engine")
    refuted = canaria("audit-program", script, "--claimed", "0.01", "--delta", "1e-5")
    assert refuted.code == 1


def test_what_goes_wrong_on_the_command_line_is_one_line(script: str, tmp_path: Path) -> None:
    assert "SCRIPT must be a Python file" in canaria("audit-program", str(tmp_path / "absent.py")).err
    failed = canaria("audit-program", script, "--", "--no-such-option")
    assert failed.code == 2
    assert failed.err.splitlines()[-1] == (
        "canaria: the program failed (exit code 2) before it made a private step"
    )
    late = tmp_path / "late.py"
    late.write_text(f"{SCRIPT}\nraise ValueError('at the end')\n")
    ended = canaria("audit-program", str(late))
    assert ended.code == 2
    assert "ε ≥" in ended.out
    assert "the program failed (ValueError); the report covers its training until then" in ended.err


def test_a_program_that_leaves_at_once_is_reported(script: str, tmp_path: Path) -> None:
    hasty = tmp_path / "hasty.py"
    hasty.write_text(f"import os\n{SCRIPT}\nos._exit(0)\n")
    ran = canaria("audit-program", str(hasty), "--canaries", "500")
    assert ran.code == 0
    assert "the claim ε = 4 is not refuted" in ran.out
    hasty.write_text(f"import os\n{SCRIPT}\nos._exit(3)\n")
    failed = canaria("audit-program", str(hasty), "--canaries", "500")
    assert failed.code == 2
    assert "the program failed (exit code 3); the report covers its training until then" in failed.err
    assert os._exit.__module__ == "posix"


def test_children_of_a_program_leave_as_always(tmp_path: Path) -> None:
    forks = tmp_path / "forks.py"
    forks.write_text(
        "import os\nif (child := os.fork()) == 0:\n    os._exit(7)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    ran = installed("audit-program", str(forks))
    assert ran.err.splitlines()[-1].startswith("canaria: the program failed (exit code 7)")


def test_a_program_that_a_thread_ends_has_no_report(tmp_path: Path) -> None:
    ended = tmp_path / "ended.py"
    ended.write_text(
        "import os, threading, time\nthreading.Thread(target=os._exit, args=(0,)).start()\ntime.sleep(60)\n"
    )
    ran = installed("audit-program", str(ended))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "canaria: the program ended by os._exit in a thread, so there is no report\n"


@pytest.mark.parametrize("how", ["attach(optimizer, loader, injection='sum', canaries=100)", "auditing(100)"])
def test_a_program_that_audits_itself_is_told_so(how: str, tmp_path: Path) -> None:
    audits = tmp_path / "audits.py"
    body = (
        f"with {how} as audit:\n    programs.by_the_engine()\naudit.report(delta=1e-5)"
        if how.startswith("auditing")
        else f"model, optimizer, loader = programs._asked()\n{how}"
    )
    audits.write_text(
        "import tests.integrations.test_auditing as programs\n"
        f"from canaria.integrations.opacus import attach, auditing\n{body}\n"
    )
    ran = canaria("audit-program", str(audits))
    assert ran.code == 2
    last = ran.err.splitlines()[-1]
    assert "optimizer is audited already" in last
    assert "run it as it is, not by audit-program" in last


class TestProgramsOfTheirOwnMaking:
    """Samplers, noise and models that Opacus did not make are followed, or refused before the first step."""

    @staticmethod
    def report(audit: Any) -> Any:
        result = audit.report(delta=1e-5, rungs=False)
        assert result.conformance is not None
        return result

    @pytest.mark.parametrize("engine", [True, False])
    @pytest.mark.parametrize("kind", [Poisson, Shuffled])
    def test_a_sampler_of_its_own(self, kind: type[Poisson], engine: bool) -> None:
        """Given to an engine that leaves loaders alone, or used by hand, as dp-transformers does."""
        torch.manual_seed(0)
        with auditing(500, rng=0) as audit:
            loader = DataLoader(digits(ROWS), batch_sampler=kind(ROWS, 10))
            validation = DataLoader(digits(100), batch_size=10)
            if engine:
                model: Any = _small()
                model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
                    module=model,
                    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                    data_loader=loader,
                    noise_multiplier=1.0,
                    max_grad_norm=1.0,
                    poisson_sampling=False,
                )
            else:
                model = GradSampleModule(_small())
                optimizer = TestPairsAreRight.by_hand(model)
            for _ in range(2):
                list(validation)
                _train(model, optimizer, loader)
        assert audit.audits[0].sample_rate == 0.1
        result = self.report(audit)
        assert result.contradictions == ()
        assert result.alarming == (kind is Shuffled)

    @pytest.mark.parametrize("half", [True, False])
    def test_noise_of_its_own_that_is_put_in_later(self, half: bool) -> None:
        torch.manual_seed(0)
        with auditing(500, rng=0) as audit:
            model, optimizer, loader = _asked()

            def noise() -> None:
                for p in optimizer.params:
                    p.grad = p.summed_grad + (0.5 if half else 1.0) * torch.randn_like(p)

            optimizer.add_noise = noise
            _train(model, optimizer, loader)
        assert self.report(audit).alarming == half

    @pytest.mark.parametrize("raised", [True, False])
    def test_a_model_that_clips_by_ghost_is_seen(self, raised: bool) -> None:
        """Made by hand, beside its optimizer."""

        class Raised(Ghost):
            def split(self, loader: Any) -> Any:
                self.model.max_grad_norm = 5.0
                return super().split(loader)

        torch.manual_seed(0)
        with auditing(500, rng=0) as audit:
            (Raised if raised else Ghost)()(digits(100))
        result = self.report(audit)
        assert "model=model" not in result.tested["clipping"]
        assert result.alarming == raised

    @pytest.mark.parametrize("asked", [(), ("--canaries", "1000")])
    def test_a_model_with_few_weights(self, asked: tuple[str, ...], tmp_path: Path) -> None:
        """650 weights: half of them carry canaries by default; a number that was asked for is refused."""
        small = tmp_path / "small.py"
        small.write_text(SMALL)
        ran = canaria("audit-program", str(small), "--json", *asked)
        if asked:
            assert (ran.code, ran.out) == (2, "")
            (said,) = ran.err.splitlines()
            assert "could not be audited: canaries need 1000 coordinates, but the model has 650" in said
        else:
            assert ran.code == 0
            canaries = json.loads(ran.out.splitlines()[-1])["facts"]["canaries"]
            assert canaries.startswith("325 unit gradients")
            assert "fewer than 1000, to leave half of the weights to the noise" in canaries

    @pytest.mark.parametrize(
        ("line", "why"),
        [
            ("optimizer.pre_step = lambda: True", "a step bypassed the audit"),
            ("optimizer.step = optimizer.original_optimizer.step", "a step bypassed the audit"),
            ("engine.accountant.history = [(1.0, 0.1, 20)]", "goes on from a checkpoint"),
        ],
    )
    def test_programs_that_cannot_be_audited_stop_before_they_train(
        self, line: str, why: str, tmp_path: Path
    ) -> None:
        replaced = tmp_path / "replaced.py"
        replaced.write_text(SMALL.replace("# here", line))
        ran = canaria("audit-program", str(replaced))
        assert (ran.code, ran.out) == (2, "")
        (said,) = ran.err.splitlines()
        assert why in said


SMALL = """
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader
from tests.integrations.digits import digits
model = torch.nn.Linear(64, 10)
engine = PrivacyEngine(accountant="rdp")
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    data_loader=DataLoader(digits(600), batch_size=60),
    max_grad_norm=1.0,
    noise_multiplier=1.0,
)
# here
for rows, labels in loader:
    torch.nn.functional.cross_entropy(model(rows), labels).backward()
    optimizer.step()
    print("a step", flush=True)
    optimizer.zero_grad()
"""


class TestPairsAreRight:
    """Which loader feeds which optimizer decides at which rate canaries are drawn: no guessing."""

    @staticmethod
    def by_hand(model: Any, noise: float = 1.0) -> DPOptimizer:
        return DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=noise,
            max_grad_norm=1.0,
            expected_batch_size=BATCH,
        )

    def test_a_loader_for_validation_does_not_feed(self) -> None:
        model = GradSampleModule(_small())
        with auditing(500, rng=0) as audit:
            training = DPDataLoader(digits(ROWS), sample_rate=BATCH / ROWS)
            DPDataLoader(digits(100), sample_rate=1.0)
            _train(model, self.by_hand(model), training)
        assert audit.audits[0].sample_rate == pytest.approx(BATCH / ROWS)
        assert audit.report(delta=1e-5, rungs=False).contradictions == ()

    def test_a_loader_that_is_only_evaluated_on_proves_nothing(self) -> None:
        """Canaries would be drawn at its rate, which is not that of training."""
        model = GradSampleModule(_small())
        with auditing(500, rng=0) as audit:
            validation = DPDataLoader(digits(100), sample_rate=1.0)
            optimizer = self.by_hand(model)
            assert len(list(validation)) == 1
            _train(model, optimizer, DataLoader(digits(ROWS), batch_size=BATCH))
        with pytest.raises(InputError, match="did not draw"):
            audit.report(delta=1e-5)

    def test_a_loader_that_never_draws_proves_nothing(self) -> None:
        model = GradSampleModule(_small())
        with auditing(500, rng=0) as audit:
            DPDataLoader(digits(100), sample_rate=1.0)
            _train(model, self.by_hand(model), DataLoader(digits(ROWS), batch_size=BATCH))
        with pytest.raises(InputError, match="not clear which data loader feeds an optimizer"):
            audit.report(delta=1e-5)

    def test_two_optimizers_by_hand_are_not_guessed_at(self) -> None:
        first, second = GradSampleModule(_small()), GradSampleModule(_small())
        with auditing(500, rng=0) as audit:
            optimizers = [self.by_hand(first), self.by_hand(second)]
            loaders = [DPDataLoader(digits(ROWS), sample_rate=rate) for rate in (0.1, 0.5)]
            for model, optimizer, loader in zip((first, second), optimizers, loaders, strict=True):
                _train(model, optimizer, loader)
        (second_alone,) = audit.audits
        assert second_alone.optimizer is optimizers[1]
        assert second_alone.sample_rate == 0.5

    def test_one_engine_makes_its_own_pairs(self) -> None:
        with auditing(500, rng=0) as audit:
            DPDataLoader(digits(100), sample_rate=1.0)
            by_the_engine()
            _train(*_asked(poisson_sampling=False))
        assert audit.audits[0].sample_rate == pytest.approx(BATCH / ROWS)
        (missing,) = audit.report(delta=1e-5, rungs=False).contradictions
        assert "another training of this program was not audited" in missing
        assert audit.refused[0] in missing

    def test_two_models_on_one_engine_are_not_accused(self) -> None:
        engine = PrivacyEngine(accountant="rdp")

        def made() -> tuple[Any, ...]:
            model = _small()
            return engine.make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                data_loader=DataLoader(digits(ROWS), batch_size=BATCH),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )

        with auditing(500, rng=0) as audit:
            for one in [made(), made()]:
                _train(*one)
        results = audit.reports(delta=1e-5, rungs=False)
        assert [result.contradictions for result in results] == [(), ()]

    @pytest.mark.parametrize("given", [True, False])
    def test_a_private_loader_that_an_engine_is_given_may_feed(self, given: bool) -> None:
        """As with Opacus' data module for Lightning: the engine makes another loader, which is not used."""
        torch.manual_seed(0)
        model = _small()
        with auditing(500, rng=0) as audit:
            loader = DPDataLoader(digits(ROWS), sample_rate=BATCH / ROWS)
            model, optimizer, made = PrivacyEngine(accountant="rdp").make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                data_loader=loader,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
            list(made if given else loader)  # an evaluation
            _train(model, optimizer, loader if given else made)
        result = audit.report(delta=1e-5, rungs=False)
        assert result.contradictions == ()
        assert result.conformance is not None
        assert result.conformance.p_value > 1e-3
        assert audit.audits[0].steps == PASSES * ROWS / BATCH

    def test_a_given_loader_of_another_rate_does_not_feed(self) -> None:
        """0.35 is not the rate of the loader that the engine makes: 1 in 2 batches."""
        model = _small()
        with auditing(500, rng=0) as audit:
            loader = DPDataLoader(digits(ROWS), sample_rate=0.35)
            model, optimizer, _ = PrivacyEngine(accountant="rdp").make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                data_loader=loader,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
            _train(model, optimizer, loader)
        with pytest.raises(InputError, match="did not draw"):
            audit.report(delta=1e-5)

    def test_an_optimizer_fed_by_another_loader_is_not_audited(self) -> None:
        with auditing(500, rng=0) as audit:
            first, optimizer, loader = _asked()
            second, other, _ = _asked()
            for rows, labels in loader:
                for model, one in ((first, optimizer), (second, other)):
                    nn.functional.cross_entropy(model(rows), labels).backward()
                    one.step()
                    one.zero_grad()
        (result,) = audit.reports(delta=1e-5, rungs=False)
        (missing,) = result.contradictions
        assert "its steps were made of batches that its data loader did not draw" in missing

    def test_a_resumed_training_is_not_accused(self) -> None:
        with auditing(500, rng=0) as audit:
            model, optimizer, loader = _asked()
            accountant_of(optimizer).history = [(1.0, 0.1, 20)]
            _train(model, optimizer, loader)
        with pytest.raises(InputError, match="goes on from a checkpoint"):
            audit.report(delta=1e-5)

    def test_an_engine_that_fails_leaves_nothing_behind(self) -> None:
        with auditing(500, rng=0) as audit:
            with pytest.raises(ValueError, match="clipping"):
                _asked(clipping="no such clipping")
            by_the_engine()
        assert audit.report(delta=1e-5, rungs=False).contradictions == ()

    @pytest.mark.parametrize("accountant", ["rdp", "prv"])
    def test_accountants_that_fail_without_noise(self, accountant: str) -> None:
        model = _small()
        with auditing(500, rng=0) as audit:
            _train(
                *PrivacyEngine(accountant=accountant).make_private(
                    module=model,
                    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                    data_loader=DataLoader(digits(ROWS), batch_size=BATCH),
                    noise_multiplier=0.0,
                    max_grad_norm=1.0,
                )
            )
        assert audit.report(delta=1e-5, rungs=False).bound.epsilon > 2
