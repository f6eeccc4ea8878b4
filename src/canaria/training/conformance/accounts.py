"""The steps that a privacy accountant recorded, compared with the steps that the audit saw."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from canaria.training.findings import Findings

_SAME: Final = 1e-9
"""Relative difference up to which two settings are the same."""
_SHOWN: Final = 2
"""Number of differences shown of each kind. A schedule the accountant ignores differs in every step."""


class Account:
    """The noise multiplier and sampling rate of each step, run-length encoded."""

    def __init__(self) -> None:
        self._runs: list[tuple[float, float, int]] = []

    @classmethod
    def of(cls, runs: Iterable[tuple[float, float, int]]) -> "Account":
        """Build an account from runs of equal steps: noise multiplier, sampling rate, number of steps."""
        account = cls()
        for noise, rate, steps in runs:
            account.add(noise, rate, steps)
        return account

    def add(self, noise: float, rate: float, steps: int = 1) -> None:
        last_noise, last_rate, before = self._runs[-1] if self._runs else (math.nan, math.nan, 0)
        if math.isclose(noise, last_noise, rel_tol=_SAME) and math.isclose(rate, last_rate, rel_tol=_SAME):
            self._runs[-1] = (last_noise, last_rate, before + steps)
        else:
            self._runs.append((noise, rate, steps))

    @property
    def steps(self) -> int:
        return sum(steps for *_, steps in self._runs)

    def merged(self) -> list[tuple[float, float, int]]:
        """Each distinct setting with its number of steps."""
        found: dict[tuple[float, float], int] = {}
        for noise, rate, steps in self._runs:
            found[noise, rate] = found.get((noise, rate), 0) + steps
        return [(noise, rate, steps) for (noise, rate), steps in found.items()]

    def first(self, steps: int) -> "Account":
        """An account of only the first steps."""
        found = Account()
        for noise, rate, count in self._runs:
            if (taken := min(count, steps - found.steps)) > 0:
                found.add(noise, rate, taken)
        return found

    def to_list(self) -> list[tuple[Any, ...]]:
        """The runs of equal steps, for a checkpoint."""
        return list(self._runs)

    def at(self, step: int) -> tuple[float, float]:
        """The settings of a step. Steps count from 0."""
        for noise, rate, steps in self._runs:
            if step < steps:
                return noise, rate
            step -= steps
        raise IndexError(step)

    def differences(self, other: "Account") -> list[int]:
        """The steps, counted from 0, at which a run of either account begins and the settings differ."""
        ends = {0}
        for account in (self, other):
            end = 0
            for *_, steps in account._runs:
                end += steps
                ends.add(end)
        common = [step for step in sorted(ends) if step < min(self.steps, other.steps)]
        return [step for step in common if not _same(self.at(step), other.at(step))]


@dataclass
class Setting:
    """The values that a setting of training took over the steps.

    Attributes:
        values: The last, the smallest and the largest value; empty before the first step.
        changes: The number of changes.
    """

    values: tuple[float, ...] = ()
    changes: int = 0

    def add(self, value: float) -> None:
        """Record the value of one more step."""
        if self.values and value == self.values[0]:
            return
        last, least, most = self.values or (value,) * 3
        self.changes += not _close(value, last)
        self.values = (value, min(least, value), max(most, value))

    def doubt(self, name: str) -> tuple[str, ...]:
        """A warning that the changes may depend on the data; empty if the value never changed."""
        if not self.changes:
            return ()
        often = "once" if self.changes == 1 else f"{self.changes} times"
        _, least, most = self.values
        return (
            f"the {name} changed {often} ({least:.3g} to {most:.3g}), which leaks without limit if it "
            "depends on the data; check_neighbours tests that",
        )


def disagreements(told: Account, seen: Account) -> Findings:
    """Compare the accountant's record with the steps that were seen.

    If the accountant assumed less noise or a higher rate than the true one, its ε is only too large, and the
    difference is a remark. Otherwise it is a contradiction.
    """
    unsafe: list[str] = []
    safe: list[str] = []
    if told.steps != seen.steps:
        # Unsafe even if the accountant counted more: steps that the audit did not see may have any settings.
        unsafe.append(f"the accountant counted {told.steps} steps, the audit saw {seen.steps}")
    for step in told.differences(seen):
        (noise, rate), (true_noise, true_rate) = told.at(step), seen.at(step)
        wrong = []
        if not _close(noise, true_noise):
            wrong.append(f"noise multiplier {noise:.6g} where it is {true_noise:.6g}")
        if not _close(rate, true_rate):
            wrong.append(f"sample rate {rate:.6g} where it is {true_rate:.6g}")
        text = f"from step {step + 1} on the accountant was told {' and '.join(wrong)}"
        too_low = (noise > true_noise and not _close(noise, true_noise)) or (
            rate < true_rate and not _close(rate, true_rate)
        )
        (unsafe if too_low else safe).append(text)
    return Findings(contradictions=tuple(unsafe[:_SHOWN]), remarks=tuple(safe[:_SHOWN]))


def counted(seen: int, planned: int | None, why: str, *, unfinished: bool) -> Findings:
    """Compare the number of steps that were seen with the stated number, if there is one.

    Missing steps are no fault if training is `unfinished`. Otherwise the report explains `why` steps may be
    missing: an audit cannot tell training that was stopped from steps that it did not see.
    """
    tested = {"steps": ""}  # no reason why not
    if planned is None:
        return Findings(untested={"steps": "their number is not stated; give steps"})
    if seen > planned:
        told = (f"training made {seen} steps, where {planned} are stated",)
        return Findings(contradictions=told, untested=tested)
    if seen == planned:
        return Findings(untested=tested)
    few = f"{seen} of {planned} stated steps {'was' if seen == 1 else 'were'} seen"
    if unfinished:
        return Findings(remarks=(few,), untested=tested)
    said = "if training was stopped early or goes on, say so with unfinished=True"
    return Findings(contradictions=(f"{few}: {why}; {said}",), untested=tested)


def _same(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(_close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SAME)
