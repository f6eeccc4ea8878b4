"""The plan of an audit as an object: it prints as text and is plain data for JSON."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from scipy import special

from canaria._core import markup
from canaria._core.rounding import rounded_down
from canaria.bounds.conformance import LEVEL, needed
from canaria.training.conformance.noise import PARTS
from canaria.training.plan._expected import Expected

POWER: Final = 0.8
"""The probability at which a fault counts as found."""
_MISSED: Final = 1e-3
"""A fault that counts as seen is missed with this probability at most."""
LARGEST_FACTOR: Final = 64.0
"""The largest factor by which noise is planned to be too small."""


@dataclass(frozen=True)
class Choice:
    """One of the audits that a plan compares.

    Attributes:
        canaries: The number of canaries.
        per_coordinate: The number of canaries on each coordinate.
        expected: The bound to expect.
        power: The probability that the claim is refuted if the noise is too small by `Plan.factor`; None
            without a factor.

    Example:
        >>> from canaria.training.plan import Choice, Expected
        >>> expected = Expected(mean=0.48, deviation=0.13, low=0.27, high=0.7)
        >>> Choice(canaries=1000, per_coordinate=1, expected=expected, power=0.9).expected.mean
        0.48
    """

    canaries: int
    per_coordinate: int
    expected: Expected
    power: float | None


@dataclass(frozen=True)
class Fault:
    """Noise that is too small by a factor, and how likely each rule is to refute the claim.

    Attributes:
        factor: The factor by which the noise is too small.
        epsilon: The epsilon that training then has; None if delta is 0.
        power: The probability that the claim is refuted, by rule.

    Example:
        >>> from canaria.training.plan import Fault
        >>> Fault(factor=2.0, epsilon=5.0, power={"Ranked()": 0.1, "Soft()": 0.4}).power["Soft()"]
        0.4
    """

    factor: float
    epsilon: float | None
    power: dict[str, float]


class _Part(NamedTuple):
    """A line of the printed plan, and the rows of the table below it."""

    name: str
    text: str
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Limit:
    """The expected accuracy on the most confident share of the guesses.

    Attributes:
        share: The share of the canaries.
        accuracy: The expected accuracy on them.

    Example:
        >>> from canaria.training.plan import Limit
        >>> round(Limit(share=0.1, accuracy=0.88).epsilon, 3)
        1.992
    """

    share: float
    accuracy: float

    @property
    def epsilon(self) -> float:
        """The epsilon at which this accuracy is the best possible, p^{-1}(accuracy)."""
        return float(special.logit(min(max(self.accuracy, 0.5), 1 - 1e-16)))


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The audit that a plan is for, and its training.

    Attributes:
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        steps: The number of training steps.
        sample_rate: The sampling rate.
        noise_multiplier: The noise multiplier.
        confidence: The confidence of the bounds.
        canaries: The number of canaries.
        per_coordinate: The number of canaries on each coordinate.
        coordinates: The number of coordinates with canaries.
        coordinates_given: Whether the number of coordinates was given.
        rule: The rule of the audit.
        black_box: Whether only the finished model is seen.

    Example:
        ```python
        found = plan(2.0, 1e-5, steps=100, sample_rate=0.1, canaries=1000)
        found.audit.noise_multiplier  # 2.42: what the RDP accountant asks for
        ```
    """

    epsilon: float
    delta: float
    steps: int
    sample_rate: float
    noise_multiplier: float
    confidence: float
    canaries: int
    per_coordinate: int
    coordinates: int
    coordinates_given: bool
    rule: str
    black_box: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an audit of DP-SGD can show.

    All numbers assume that training does what it says, except `faults`, which assume that its noise is too
    small.

    Attributes:
        audit: The audit, and the training that it is for.
        expected: The bound to expect.
        rules: The expected bound of each rule.
        elements: A comparison of numbers of canaries per coordinate, for the given number of canaries or on
            the given coordinates.
        advised: The advised number per coordinate: the one with the largest expected bound on the given
            coordinates, or 1.
        growth: A comparison of numbers of canaries, with as many per coordinate.
        factor: The factor for which `elements` and `growth` give the power; None if no faults were asked for.
        faults: The power against each factor by which the noise may be too small.
        refuted_from: The smallest factor at which the audit refutes the claim with probability 0.8; None if
            there is none up to 64, or if no faults were asked for.
        limits: What the guesses of one run are worth, however many canaries there are.
        perfect: The bound of an audit of this size if every guess were right.

    Example:
        ```python
        found = plan(2.0, 1e-5, steps=100, sample_rate=0.1, coordinates=500)
        found.advised  # how many canaries to put on each coordinate
        {fault.factor: fault.power for fault in found.faults}  # what the audit would refute
        ```
    """

    audit: AuditSettings
    expected: Expected
    rules: dict[str, Expected]
    elements: tuple[Choice, ...]
    advised: int
    growth: tuple[Choice, ...]
    factor: float | None
    faults: tuple[Fault, ...]
    refuted_from: float | None
    limits: tuple[Limit, ...]
    perfect: float

    @property
    def best_rule(self) -> str:
        """The rule with the largest expected bound."""
        return max(self.rules, key=lambda rule: self.rules[rule].mean)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON."""
        limits = [{**asdict(one), "epsilon": one.epsilon} for one in self.limits]
        answers = asdict(self)
        return {**answers.pop("audit"), **answers, "best_rule": self.best_rule, "limits": limits}

    def __str__(self) -> str:
        """The plan as text with tables."""
        lines = [self._title]
        for part in self._parts():
            lines.append(f"  {part.name:<12} {part.text}")
            width = max((len(row[0]) + 1 for row in part.rows), default=0)
            lines += [
                f"    {title:<{max(width, 19)}}" + "".join(f"{cell:>8}" for cell in cells)
                for title, *cells in part.rows
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = self._parts()
        said = markup.described((part.name, part.text) for part in parts)
        tables = [
            markup.paragraph(part.name) + markup.tabulated(part.rows[0], part.rows[1:])
            for part in parts
            if part.rows
        ]
        return markup.paragraph(self._title) + said + "".join(tables)

    @property
    def _title(self) -> str:
        audit = self.audit
        placed = f"{audit.per_coordinate} per coordinate"
        if audit.black_box:
            placed = "with weights of their own, seen in the finished model"
        return (
            f"Plan: {audit.canaries} canaries, {placed}, in DP-SGD of "
            f"{audit.steps} steps, sample rate {audit.sample_rate:g}, noise {audit.noise_multiplier:.4g}"
        )

    def _parts(self) -> list[_Part]:
        audit = self.audit
        means = tuple((rule, f"{one.mean:.2f}") for rule, one in self.rules.items())
        alone = "; a bound for DP-SGD of these steps and this rate alone" * audit.rule.startswith("Matched")
        return [
            _Part(
                "claim",
                f"epsilon {audit.epsilon:g} at delta {audit.delta:g}; bounds at "
                f"{100 * audit.confidence:.10g}% confidence",
            ),
            _Part(
                "expected", f"epsilon >= {self.expected} by {audit.rule}, if training keeps the claim{alone}"
            ),
            _Part("rules", f"{self._rules_in_words()}; choose before you look", (("rule", "bound"), *means)),
            *self._elements_in_words(),
            *self._growth_in_words(),
            *self._faults_in_words(),
        ]

    def _rules_in_words(self) -> str:
        powers = {rule: sum(fault.power[rule] for fault in self.faults) for rule in self.rules}
        strongest = max(powers, key=lambda rule: powers[rule])
        if powers[strongest] <= powers[self.best_rule]:
            return f"{self.best_rule} is expected to be best"
        return f"{self.best_rule} gives the largest bounds, {strongest} finds the most faults"

    def _elements_in_words(self) -> list[_Part]:
        if not self.elements:
            return []
        fixed = f"{self.audit.canaries} canaries in all"
        advice = "1 per coordinate is best; use more only if coordinates are scarce"
        if self.audit.coordinates_given:
            fixed = f"{self.audit.coordinates} coordinates"
            advice = f"{self.advised} has the largest expected bound"
            powers = {one.per_coordinate: one.power or 0.0 for one in self.elements}
            strongest = max(powers, key=lambda crowd: powers[crowd])
            if powers[strongest] > powers[self.advised]:
                advice += f", {strongest} the most power"
        row = ("per coordinate", *(f"{one.per_coordinate}" for one in self.elements))
        return [_Part("elements", f"with {fixed}: {advice}", (row, *self._rows(self.elements)))]

    def _growth_in_words(self) -> list[_Part]:
        passed = f"{100 * (1 - self.audit.confidence):.3g}%"
        more = f"effect of using more; the claim is the ceiling (at most {passed} exceed it)"
        growth = _Part("canaries", more, self._rows(self.growth))
        if self.audit.rule.startswith("Matched"):
            return [growth]
        rows = (
            ("of the surest", *(f"{100 * one.share:g}%" for one in self.limits)),
            ("are guessed right", *(f"{100 * one.accuracy:.0f}%" for one in self.limits)),
            ("as epsilon", *(_at_most(one.epsilon, 20, ".2f") for one in self.limits)),
        )
        nearing = "with ever more canaries, bounds from these guesses approach this epsilon"
        return [growth, _Part("limit", nearing, rows)]

    def _rows(self, choices: tuple[Choice, ...]) -> tuple[tuple[str, ...], ...]:
        rows = (
            ("canaries", *(f"{one.canaries}" for one in choices)),
            ("expected bound", *(f"{one.expected.mean:.2f}" for one in choices)),
            ("deviation", *(f"{one.expected.deviation:.2f}" for one in choices)),
        )
        powers = [f"{100 * one.power:.0f}%" for one in choices if one.power is not None]
        return (*rows, (f"noise / {self.factor:g} refuted", *powers)) if powers else rows

    def _half_the_noise_seen(self) -> str:
        """Whether conformance detects it for sure: in the sums, or at weights without canaries."""
        audit = self.audit
        found = "the training report's conformance test detects half the noise in the same run"
        # The variance of a sum, in clip norms: of the draws of the half of its canaries that is included, and
        # of the noise. Half the noise leaves a quarter of the second part.
        drawn = audit.sample_rate * (1 - audit.sample_rate) * audit.per_coordinate / 2
        noise = audit.noise_multiplier**2
        ratio = (drawn + noise / 4) / (drawn + noise)
        if _surely_smaller(ratio, audit.coordinates - 2, needed(PARTS, LEVEL)):
            return found
        return f"{found}, if the model has some hundred weights without canaries"

    def _faults_in_words(self) -> list[_Part]:
        # Conformance is tested step by step, which a finished model does not show.
        conformance = [] if self.audit.black_box else [_Part("conformance", self._half_the_noise_seen())]
        if not self.faults:
            return conformance
        found = f"no noise down to 1 / {LARGEST_FACTOR:g} of what is stated is refuted by {self.audit.rule}"
        if self.refuted_from is not None:
            found = f"noise {self.refuted_from:.2g} times too small is refuted by {self.audit.rule}"
        found += f" with a probability of {100 * POWER:g}%"
        if self.perfect <= self.audit.epsilon:
            found = (
                f"NONE can be refuted by {self.audit.rule}: if every guess were right, it would prove only "
                f"epsilon >= {rounded_down(self.perfect)} at this delta"
            )
        epsilons = [_at_most(fault.epsilon, 100, ".3g") for fault in self.faults if fault.epsilon is not None]
        rows = [("noise /", *(f"{fault.factor:g}" for fault in self.faults))]
        rows += [("its epsilon", *epsilons)] if epsilons else []
        for rule in self.rules:
            rows.append((f"{rule} refutes", *(f"{100 * fault.power[rule]:.0f}%" for fault in self.faults)))
        return [_Part("faults", found, tuple(rows)), *conformance]


def _surely_smaller(ratio: float, freedom: float, needed: float) -> bool:
    """Whether squares at this ratio of their usual size have so small a p-value, with probability 0.999."""
    most = ratio * float(special.chdtri(freedom, _MISSED)) if freedom > 0 else math.inf
    return bool(2 * special.chdtr(max(freedom, 1.0), most) <= needed)


def _at_most(value: float, most: float, layout: str) -> str:
    return f"> {most:g}" if value > most else f"{value:{layout}}"
