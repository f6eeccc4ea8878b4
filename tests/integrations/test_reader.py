"""Reading steps: asking, resuming and failing change nothing, and there are few calls."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from canaria.evidence import AuditWarning
from canaria.integrations.opacus import Audit, _weights, attach
from canaria.training.recording import Recording
from tests.integrations.digits import SIGMA, Private, private

CANARIES = 500


def begun(sigma: float = SIGMA, **options: Any) -> tuple[Audit, Private]:
    made = private("sum", mode="ghost", sigma=sigma)
    return attach(made.optimizer, made.loader, injection="sum", canaries=CANARIES, rng=0, **options), made


def go_on(made: Private, steps: int) -> None:
    """Steps on one batch."""
    rows, labels = made.loader.dataset[:40]
    for _ in range(steps):
        made.criterion(made.model(rows), labels).backward()
        made.optimizer.step()
        made.optimizer.zero_grad()


def assert_equal(found: Recording, expected: Recording) -> None:
    """To the last digit."""
    assert found.steps == expected.steps
    assert np.array_equal(found.sums, expected.sums)
    assert np.array_equal(found.table, expected.table)
    for one, other in zip(found.witnessed, expected.witnessed, strict=True):
        assert np.array_equal(one, other)


def test_looking_changes_nothing() -> None:
    """At what was seen, after every step or every third, also where noise is totalled in some steps alone."""
    found = []
    for every in (1000, 1, 3):
        audit, made = begun()
        torch.manual_seed(1)
        for step in range(1, 101):
            go_on(made, 1)
            if step % every == 0:
                assert audit.recording().steps == audit.steps == step
                audit.state_dict()
        found.append(audit.recording())
    assert_equal(found[1], found[0])
    assert_equal(found[2], found[0])


@pytest.mark.parametrize("every", [1, 3, 4])
def test_watching_sees_every_step(every: int) -> None:
    found = []
    for watching in (False, True):
        audit, made = begun()
        watch = audit.watch(every=every) if watching else None
        torch.manual_seed(1)
        go_on(made, 36)
        assert watch is None or (watch.reading().steps, watch.alarm) == (36, None)
        found.append(audit.recording())
    assert_equal(found[1], found[0])


@pytest.mark.parametrize("steps", [2, 63, 64, 101])
def test_a_resumed_audit_gives_the_same(steps: int) -> None:
    """In the middle of draws, of steps that are held back, and of what is totalled."""
    whole, made = begun()
    torch.manual_seed(1)
    go_on(made, steps)
    saved = whole.state_dict(), made.model.state_dict(), torch.get_rng_state()
    kept = {name: value.clone() for name, value in saved[1].items()}
    history = made.engine.accountant.state_dict()
    go_on(made, 50)
    again = private("sum", mode="ghost")
    again.model.load_state_dict(kept)
    again.engine.accountant.load_state_dict(history)
    resumed = attach(again.optimizer, again.loader, injection="sum", canaries=CANARIES, rng=7, state=saved[0])
    torch.set_rng_state(saved[2])
    go_on(again, 50)
    assert_equal(resumed.recording(), whole.recording())


def test_steps_before_an_error_are_seen() -> None:
    """It ends the audit; the steps that are held back count."""
    (audit, made), (other, undisturbed) = begun(), begun()
    for trained in (made, undisturbed):
        torch.manual_seed(1)
        go_on(trained, 6)
    with pytest.warns(AuditWarning, match="a step bypassed the audit"):
        made.optimizer.original_optimizer.step()
    go_on(made, 3)
    assert_equal(audit.recording(), other.recording())
    assert "nothing was seen after step 6" in audit.ended


def test_steps_that_were_not_made_are_not_counted() -> None:
    """Nor do they put others out of place: without noise, what is left is whole canaries, and nothing else."""
    audit, made = begun(sigma=1e-4)
    count = made.optimizer.step_hook

    class Stop(Exception):  # noqa: N818, as users name them
        pass

    def stop(_: Any) -> None:
        raise Stop

    for steps in (2, 1, 4):
        go_on(made, steps)
        made.optimizer.attach_step_hook(stop)
        with pytest.raises(Stop):
            go_on(made, 1)
        made.optimizer.attach_step_hook(count)
        made.optimizer.zero_grad()
    go_on(made, 1)
    record = audit.recording()
    assert record.steps == 8
    assert record.sums.max() >= 1
    assert record.sums == pytest.approx(np.round(record.sums), abs=0.01)
    assert np.abs(record.witnessed.totals).max() <= 6


class Calls(TorchDispatchMode):
    """Counts what torch is asked to compute; views compute nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not function.is_view:
            self.counted[function._schema.name] += 1
        return function(*args, **(kwargs or {}))


def calls_of(audit: Audit, made: Private) -> float:
    """How many calls the audit makes in 16 steps, after the first ones."""
    go_on(made, 64)
    calls, guarded = Calls(), audit._steps.guarded

    def counted(do: Any) -> None:
        with calls:
            guarded(do)

    audit._steps.guarded = counted  # type: ignore[method-assign]
    go_on(made, 128)
    return sum(calls.counted.values()) / 8


def test_there_are_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU it is calls that an audit costs, whatever they compute.

    Elsewhere weights and gradients are compared in every step, which takes a call for each parameter.
    """
    assert calls_of(*begun()) <= 386
    monkeypatch.setattr(_weights, "COSTLY", ("cpu",))
    assert calls_of(*begun()) <= 102
