"""What a privacy accountant was told, step by step, held against what was seen."""

import math
from collections.abc import Iterable
from typing import Any, Final

_SAME: Final = 1e-9
"""Relative difference up to which two settings are the same."""


class Account:
    """Noise multiplier and sampling rate of every step; equal ones in a row are counted."""

    def __init__(self) -> None:
        self._runs: list[tuple[float, float, int]] = []

    @classmethod
    def of(cls, runs: Iterable[tuple[float, float, int]]) -> "Account":
        """From runs of equal steps: noise multiplier, sampling rate, number of steps."""
        account = cls()
        for noise, rate, steps in runs:
            account.add(noise, rate, steps)
        return account

    def add(self, noise: float, rate: float, steps: int = 1) -> None:
        """Further steps with these settings."""
        last_noise, last_rate, before = self._runs[-1] if self._runs else (math.nan, math.nan, 0)
        if math.isclose(noise, last_noise, rel_tol=_SAME) and math.isclose(rate, last_rate, rel_tol=_SAME):
            self._runs[-1] = (last_noise, last_rate, before + steps)
        else:
            self._runs.append((noise, rate, steps))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return sum(steps for *_, steps in self._runs)

    def first(self, steps: int) -> "Account":
        """The first steps alone."""
        found = Account()
        for noise, rate, count in self._runs:
            if (taken := min(count, steps - found.steps)) > 0:
                found.add(noise, rate, taken)
        return found

    def to_list(self) -> list[tuple[Any, ...]]:
        """Runs of equal steps, for a checkpoint."""
        return list(self._runs)

    def at(self, step: int) -> tuple[float, float]:
        """The settings of a step, counted from 0."""
        for noise, rate, steps in self._runs:
            if step < steps:
                return noise, rate
            step -= steps
        raise IndexError(step)

    def first_difference(self, other: "Account") -> int | None:
        """The first step whose settings differ, counted from 0; None if there is none."""
        ends = {0}
        for account in (self, other):
            end = 0
            for *_, steps in account._runs:
                end += steps
                ends.add(end)
        common = [step for step in sorted(ends) if step < min(self.steps, other.steps)]
        return next((step for step in common if not _same(self.at(step), other.at(step))), None)


def disagreements(told: Account, seen: Account) -> tuple[str, ...]:
    """Where an accountant was told other than what was seen, in words."""
    found = []
    if told.steps != seen.steps:
        found.append(f"the accountant counted {told.steps} steps, the audit saw {seen.steps}")
    step = told.first_difference(seen)
    if step is not None:
        (noise, rate), (true_noise, true_rate) = told.at(step), seen.at(step)
        wrong = []
        if not _close(noise, true_noise):
            wrong.append(f"noise multiplier {noise:.6g} where it is {true_noise:.6g}")
        if not _close(rate, true_rate):
            wrong.append(f"sample rate {rate:.6g} where it is {true_rate:.6g}")
        found.append(f"from step {step + 1} on the accountant was told {' and '.join(wrong)}")
    return tuple(found)


def _same(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(_close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SAME)
