"""The stated settings of each step, and the accountant's record of them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from opacus.optimizers import DPOptimizer

from canaria.integrations.opacus._accountants import accountant_of, history_of
from canaria.integrations.opacus._internals import clips_adaptively, noise_added
from canaria.training.conformance.accounts import Account, Setting, disagreements
from canaria.training.findings import Findings


class Stated(NamedTuple):
    """The stated noise multiplier of a step, and the one that its accountant records."""

    noise: float
    told: float


class Settings:
    """Noise, clip norm and rate of each step; `stated` is the noise, if it differs from the optimizer's."""

    def __init__(self, optimizer: DPOptimizer, sample_rate: float, stated: float | None) -> None:
        self._optimizer, self._rate, self._stated = optimizer, sample_rate, stated
        self.adapts = clips_adaptively(optimizer)
        self._account, self._noises, self._norms = Account(), Setting(), Setting()

    def noise(self) -> float:
        """The currently stated noise multiplier."""
        return noise_added(self._optimizer) if self._stated is None else self._stated

    def now(self) -> Stated:
        """The current settings of noise."""
        return Stated(self.noise(), float(self._optimizer.noise_multiplier))

    def add(self, step: Stated, clip_norm: float) -> None:
        """Record a step."""
        self._account.add(step.told, self._rate)
        if not self.adapts:
            self._noises.add(step.noise)
            self._norms.add(clip_norm)

    @property
    def account(self) -> Account:
        """A copy of the record that the accountant should have."""
        return Account.of(self._account.to_list())

    def findings(self, *, whole: bool, accounted: bool) -> Findings:
        """Settings that changed, since the data may have decided it, and the accountant's record of them.

        That is compared if it is the accountant of this training alone, `accounted`, for all steps or, unless
        `whole`, only for those that were seen.
        """
        doubts = (*self._noises.doubt("noise multiplier"), *self._norms.doubt("clip norm"))
        accountant = accountant_of(self._optimizer) if accounted else None
        if accountant is None:
            return Findings(doubts=doubts)
        told = Account.of(history_of(accountant))
        compared = told if whole else told.first(self._account.steps)
        return disagreements(compared, self._account) + Findings(doubts=doubts)

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint."""
        return {
            "account": self._account.to_list(),
            "noises": asdict(self._noises),
            "norms": asdict(self._norms),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._account = Account.of(state["account"])
        self._noises, self._norms = Setting(**state["noises"]), Setting(**state["norms"])
