"""Audits that leave a recording: what they can be asked while training goes on, and after it."""

from abc import ABC, abstractmethod
from typing import Any

from canaria.bounds.bound import Bound
from canaria.bounds.conformance import Conformance
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.training.recording import Recording


class Recorded(ABC):
    """An audit that leaves a `Recording`, and can be asked what that shows."""

    @abstractmethod
    def recording(self) -> Recording:
        """What was seen so far."""

    def bound(self, delta: float = 0.0, confidence: float = 0.95, **how: Any) -> Bound:
        """The lower bound on epsilon that training proves so far; see `Recording.bound`."""
        return self.recording().bound(delta, confidence, **how)

    def report(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        **how: Any,
    ) -> Result:
        """Bound, claim and conformance in one text; a claim needs its `delta`. See `Recording.report`."""
        return self.recording().report(claimed, delta, confidence, **how)

    def conformance(
        self,
        *,
        steps: int | None = None,
        sample_rate: float | None = None,
        noise_multiplier: float | None = None,
    ) -> Conformance:
        """Whether the sums are what correct training would show; see `canaria.training.conformance.sums`."""
        return self.recording().conformance(
            steps=steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier
        )
