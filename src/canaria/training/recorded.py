"""Questions that an audited training run can answer, during training and after it.

Audits and recordings share this interface. An audit answers from its recording so far.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound, delta_of
from canaria.bounds.conformance import LEVEL, Conformance
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.claims.families import Family
from canaria.game.guesser import batched
from canaria.game.replay import replay_own
from canaria.game.transcript import Transcript
from canaria.rules import AdaptiveRule, Matched, Rule
from canaria.training.conformance.tested import conformance_of, not_tested
from canaria.training.results import contradictions_with, promised, result_of

if TYPE_CHECKING:
    from canaria.training.recording import Recording

_ABOUT: Final = "the release of every noisy {summed} to someone who knows the other {unit}s"


class Recorded(ABC):
    """An audit that leaves a `Recording`, or the recording itself."""

    @abstractmethod
    def recording(self) -> "Recording":
        """The record of the training so far."""

    def transcript(
        self,
        rule: Rule | AdaptiveRule | None = None,
        *,
        score: str = "likelihood",
        adaptive: bool = False,
        rng: Seed = None,
    ) -> Transcript:
        """Play the game on the record: guess the bits, in one run or adaptively; arguments as for `bound`."""
        run = self.recording()
        summed = "sum of updates" if run.unit == "client" else "gradient sum"
        return replay_own(
            run.bits,
            run.sums,
            batched(lambda _, known: run.losses(known, score)),
            rule,
            run.rounds() if adaptive else None,
            run.seed if rng is None else rng,
            adjacency="add-remove",
            about=_ABOUT.format(summed=summed, unit=run.unit),
        )

    def bound(
        self,
        delta: float = 0.0,
        confidence: float = 0.95,
        *,
        rule: Rule | AdaptiveRule | None = None,
        score: str = "likelihood",
        adaptive: bool = False,
        rng: Seed = None,
        family: Family | str | None = None,
    ) -> Bound:
        """The lower bound on epsilon that the training run proves.

        Choose the rule, the score and `adaptive` before looking at any bound: the best of several is not a
        bound.

        Args:
            delta: The delta at which epsilon is bounded.
            confidence: The confidence of the bound, strictly between 0 and 1.
            rule: The rule that turns scores into guesses; by default `Ranked()`, or `Bet()` if `adaptive`.
            score: "likelihood" or "sum".
            adaptive: Whether the bits of a round are revealed after it.
            rng: A seed, a NumPy `SeedSequence` or a `Generator`; None uses the seed of the audit.
            family: The family of claims to test, or its name; "dpsgd" is DP-SGD with the steps and the rate
                of this run. The rule is then `Matched(family, confidence)` by default.
        """
        run = self.recording()
        tested = run.family(family)
        if rule is None and tested is not None:
            rule = Matched(tested, confidence)
        game = run.transcript(rule, score=score, adaptive=adaptive, rng=rng)
        return game.bound(delta, confidence, family=tested)

    def conformance(
        self,
        *,
        steps: int | None = None,
        sample_rate: float | None = None,
        noise_multiplier: float | None = None,
    ) -> Conformance:
        """Test whether the sums follow the law of a correct DP-SGD.

        Given the bits, correct training makes the p-value of each part uniform (Theorem 26). The p-value of
        the test is the smallest one, corrected for their number. If the test fails, it is repeated with the
        measured noise, to find out whether the size of the noise is the only cause.

        Args:
            steps: The number of steps to test; by default the recorded number.
            sample_rate: The sampling rate to test; by default the stated one.
            noise_multiplier: The noise multiplier to test; by default the stated one.
        """
        return conformance_of(
            self.recording(), steps=steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier
        )

    def not_tested(self, level: float = LEVEL) -> dict[str, str]:
        """Faults that conformance may miss in this run, one sentence per topic."""
        return not_tested(self.recording(), level)

    def contradictions_with(self, claim: Claim | None) -> tuple[str, ...]:
        """Differences that are certain, between training and what was stated or claimed."""
        return contradictions_with(self.recording(), claim)

    def report(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        *,
        rule: Rule | AdaptiveRule | None = None,
        score: str = "likelihood",
        adaptive: bool = False,
        adjacency: str = "unspecified",
        family: Family | str | None = None,
        rungs: bool = True,
        name: str = "training run",
    ) -> Result:
        """The bound, the claim and the conformance test, to print, save or render as a report.

        Args:
            claimed: The claimed epsilon, or a claim; None if there is none. With the family "dpsgd", and with
                "gaussian" for correlated noise and known steps, the default is the claim that follows from
                the stated noise multiplier.
            delta: The delta of the claim, required with an epsilon or a curve; 0 without a claim.
            confidence: The confidence of the bound, strictly between 0 and 1.
            rule: As in `bound`.
            score: As in `bound`.
            adaptive: As in `bound`.
            adjacency: The adjacency of the claim, to compare with that of the audit.
            family: As in `bound`.
            rungs: Whether to show also what follows from more assumptions. This needs a delta, and takes some
                seconds for the first run with these steps and this rate.
            name: The name of the audited training.
        """
        run = self.recording()
        tested = run.family(family)
        claim = promised(run, claimed, delta, adjacency, tested)
        asked = delta_of(claim, delta)
        bound = run.bound(asked, confidence, rule=rule, score=score, adaptive=adaptive, family=tested)
        return result_of(run, claim, bound, score=score, adaptive=adaptive, rungs=rungs, name=name)
