"""The expected bound of an audit, its spread, and the power to refute a claim."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from canaria._core import checks, seeds
from canaria._core.errors import InputError, shown
from canaria.claims import DpSgd
from canaria.claims.families import DpSgdFamily
from canaria.evidence import Evidence
from canaria.mechanisms.correlated import Correlated
from canaria.rules import Around, Matched, Ranked, Soft
from canaria.training.plan._around import suited
from canaria.training.plan._law import Law, games, law_of_losses, law_of_sums
from canaria.training.plan._verdicts import Verdicts

LARGEST: Final = 1_000_000
"""The most canaries that are planned for."""
MOST_ON_ONE: Final = 64
"""The most canaries to a coordinate."""
CAREFUL: Final = 400
COMPARED: Final = 160
QUICK: Final = 50
"""How many audits are played: for one answer, to compare rules, and for other entries of a table."""
_FEWEST: Final = 40
_IN_ALL: Final = 4_000_000
"""Fewer audits are played, but not fewer than the first, if they have more canaries than this in all."""
_AUDITS: Final = 0x65787063
"""The key of the random streams of played audits."""

Rule = Ranked | Around | Soft | Matched


@dataclass(frozen=True)
class Expected:
    """The distribution of the bound of a planned audit.

    Attributes:
        mean: Its mean.
        deviation: Its standard deviation.
        low: Its 5% quantile.
        high: Its 95% quantile.

    Example:
        >>> from canaria.training.plan import Expected
        >>> Expected(mean=0.51, deviation=0.19, low=0.25, high=0.87).mean
        0.51
    """

    mean: float
    deviation: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f} (90%: {self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """An audit that could be run: its training, its canaries, and the test of its claims.

    It sees all steps, or only the `final` model.
    """

    training: DpSgd | Correlated
    canaries: int
    per_coordinate: int
    delta: float
    level: float
    rule: Rule
    final: bool = False

    @property
    def dpsgd(self) -> DpSgd:
        """The training, which is DP-SGD in a plan."""
        assert isinstance(self.training, DpSgd)
        return self.training

    @property
    def named(self) -> str:
        """The rule in tables; the family of `Matched` is that of the training."""
        return "Matched" if isinstance(self.rule, Matched) else repr(self.rule)

    def expected(self, audits: int) -> Expected:
        """The bound to expect if training is as stated, from this many audits."""
        # Bounds are known to a stride of claims; `within` puts each at random inside it (`_verdicts`).
        within = seeds.generator(1, _AUDITS)
        bounds = np.array([self._verdicts.bound(seen, within.random()) for seen in self._played(1.0, audits)])
        low, high = np.quantile(bounds, [0.05, 0.95])
        return Expected(float(bounds.mean()), float(bounds.std(ddof=1)), float(low), float(high))

    def power(self, claim: float, too_small: float, audits: int) -> float:
        """The probability that the bound lies above the claim if the noise is too small by that factor."""
        played = self._played(too_small, audits)
        return float(np.mean([self._verdicts.above(claim, seen) for seen in played]))

    def law(self, too_small: float = 1.0) -> Law:
        """The law of its losses; if coordinates cannot be equally full, all are treated as full."""
        if self.final:
            return _sums(self.dpsgd, too_small)
        return _law(self.training, -(-self.canaries // self.coordinates), too_small)

    @property
    def coordinates(self) -> int:
        """How many coordinates carry canaries."""
        return -(-self.canaries // self.per_coordinate)

    def around(self) -> Around:
        """The rule for the number of guesses that suits training as stated."""
        return Around(suited(self.law(), self.canaries, self.delta, self.level))

    @cached_property
    def _verdicts(self) -> Verdicts:
        """The known p-values of its evidence, under any noise."""
        return Verdicts(self.delta, self.level)

    def _played(self, too_small: float, wanted: int) -> Iterator[Evidence]:
        """The losses and bits of audits. They are the same for all rules, so that rules compare well."""
        # Two streams, as rules break ties with different numbers of coins: they would shift the losses.
        losses, ties = seeds.generator(0, _AUDITS).spawn(2)
        audits = max(_FEWEST, min(wanted, _IN_ALL // self.canaries))
        for game in games(self.law(too_small), self.canaries, audits, losses):
            yield self.rule(game.losses, ties).reveal(game.bits)


_law, _sums = lru_cache(maxsize=32)(law_of_losses), lru_cache(maxsize=32)(law_of_sums)


def expected_bound(
    training: DpSgd | Correlated,
    canaries: int,
    per_coordinate: int = 1,
    delta: float = 0.0,
    confidence: float = 0.95,
    rule: object = None,
) -> Expected:
    """The bound to expect from one audit, if training does what it says.

    Args:
        training: DP-SGD as stated, `canaria.claims.DpSgd`; or training with correlated noise,
            `canaria.mechanisms.Correlated`.
        canaries: The number of canaries.
        per_coordinate: The number of canaries on each coordinate.
        delta: The delta of the bound.
        confidence: The confidence of the bound, strictly between 0 and 1.
        rule: `Ranked()` (the default), `Around(k)`, `Soft()`, or `Matched` with the family of this training.

    Example:
        >>> from canaria.claims import DpSgd
        >>> training = DpSgd(steps=100, sample_rate=0.1, noise_multiplier=2.42)
        >>> expected = expected_bound(training, canaries=1000, delta=1e-5)
        >>> 0.4 < expected.mean < 0.55
        True
    """
    return checked_audit(training, canaries, per_coordinate, delta, confidence, rule).expected(CAREFUL)


def planned_rule(
    training: DpSgd | Correlated,
    canaries: int,
    per_coordinate: int = 1,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> Around | Ranked:
    """The ranked rule that is expected to show most of training as stated.

    It is `Around` the number of guesses that suits training; or `Ranked`, at low sampling rates, where high
    scores alone tell. It depends on what is stated alone, so it is fixed before training.

    Args:
        training: DP-SGD as stated, `canaria.claims.DpSgd`; or training with correlated noise,
            `canaria.mechanisms.Correlated`.
        canaries: The number of canaries.
        per_coordinate: The number of canaries on each coordinate.
        delta: The delta of the bound.
        confidence: The confidence of the bound, strictly between 0 and 1.

    Example:
        >>> from canaria.claims import DpSgd
        >>> from canaria.training.plan import planned_rule
        >>> training = DpSgd(steps=100, sample_rate=0.1, noise_multiplier=2.42)
        >>> planned_rule(training, canaries=1000, delta=1e-5)
        Around(k=121)
    """
    ranked = checked_audit(training, canaries, per_coordinate, delta, confidence, None)
    around = replace(ranked, rule=(rule := ranked.around()))
    return rule if around.expected(COMPARED).mean >= ranked.expected(COMPARED).mean else Ranked()


def refutation_power(
    training: DpSgd | Correlated,
    claimed: float,
    too_small: float,
    canaries: int,
    per_coordinate: int = 1,
    delta: float = 0.0,
    confidence: float = 0.95,
    rule: object = None,
) -> float:
    """The probability that an audit refutes the claim if the noise is smaller than stated by a factor.

    The auditor still trusts the stated noise: the losses are computed for the stated noise, but follow the
    law of the smaller noise.

    Args:
        training: DP-SGD as stated, `canaria.claims.DpSgd`; or training with correlated noise,
            `canaria.mechanisms.Correlated`.
        claimed: The claimed epsilon.
        too_small: The factor by which the noise is too small, between 1 and 1000.
        canaries: The number of canaries.
        per_coordinate: The number of canaries on each coordinate.
        delta: The delta of the claim.
        confidence: The confidence of the bound, strictly between 0 and 1.
        rule: `Ranked()` (the default), `Around(k)`, `Soft()`, or `Matched` with the family of this training.

    Example:
        >>> from canaria.claims import DpSgd
        >>> from canaria.training.plan import refutation_power
        >>> training = DpSgd(steps=100, sample_rate=0.1, noise_multiplier=2.42)
        >>> power = refutation_power(training, claimed=2.0, too_small=4.0, canaries=1000, delta=1e-5)
        >>> round(power, 1)
        1.0
    """
    audit = checked_audit(training, canaries, per_coordinate, delta, confidence, rule)
    return audit.power(checks.nonnegative("claimed", claimed), checked_factor(too_small), CAREFUL)


def checked_audit(
    training: DpSgd | Correlated,
    canaries: int,
    per_coordinate: int,
    delta: float,
    confidence: float,
    rule: object,
) -> PlannedAudit:
    """An audit, its arguments checked."""
    chosen = checked_rule(rule)
    _require_fitting(training, per_coordinate, chosen)
    checks.integer("canaries", canaries, 1, LARGEST)
    checks.integer("per_coordinate", per_coordinate, 1, canaries, "canaries")
    checks.integer("per_coordinate", per_coordinate, 1, MOST_ON_ONE)
    if isinstance(chosen, Around):
        checks.integer("k", chosen.k, 1, canaries, "canaries")
    level = 1 - checks.confidence(confidence)
    return PlannedAudit(
        training=training,
        canaries=canaries,
        per_coordinate=per_coordinate,
        delta=checks.delta(delta),
        level=level,
        rule=chosen,
    )


def _require_fitting(training: object, per_coordinate: int, rule: Rule) -> None:
    """Check that it is training that plans are made for, and that the rule is one for it."""
    if isinstance(training, DpSgd):
        family = DpSgdFamily(training.steps, training.sample_rate)
        if isinstance(rule, Matched) and rule.family != family:
            raise InputError(f"rule must be for {family}, got {rule!r}")
    elif not isinstance(training, Correlated):
        raise InputError(f"training must be DpSgd(...) or Correlated(...), got {shown(training)}")
    elif per_coordinate != 1:
        raise InputError(f"per_coordinate must be 1 where noise is correlated, got {shown(per_coordinate)}")
    elif isinstance(rule, Matched):
        raise InputError(
            f"rule must be Ranked(), Around(k) or Soft() where noise is correlated, got {shown(rule)}"
        )


def checked_rule(rule: object) -> Rule:
    """A rule that plans are made for; `Ranked()` if none is given."""
    chosen = Ranked() if rule is None else rule
    if not isinstance(chosen, Ranked | Around | Soft | Matched) or getattr(chosen, "independent", False):
        raise InputError(
            f"rule must be Ranked(), Around(k), Soft() or Matched(...) for a plan, got {shown(rule)}"
        )
    return chosen


def checked_factor(too_small: float) -> float:
    """A factor by which the noise may be too small."""
    if not 1 <= checks.real("too_small", too_small) <= 1000:
        raise InputError(f"too_small must be between 1 and 1000, got {shown(too_small)}")
    return float(too_small)
