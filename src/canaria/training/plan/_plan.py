"""Making a plan: which audits are compared, and what is computed for each."""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError, shown
from canaria._core.progress import tell
from canaria.bounds.reach import reach
from canaria.claims import DpSgd
from canaria.claims.accounting import dpsgd_epsilon, dpsgd_noise_multiplier
from canaria.rules import Around, Ranked, Soft
from canaria.training.plan._expected import (
    COMPARED,
    LARGEST,
    MOST_ON_ONE,
    QUICK,
    PlannedAudit,
    Rule,
    checked_audit,
    checked_factor,
    checked_rule,
)
from canaria.training.plan._report import LARGEST_FACTOR, POWER, AuditSettings, Choice, Fault, Limit, Plan

CANARIES: Final = 1000
TOO_SMALL: Final = (1.5, 2.0, 3.0, 4.0)
"""Factors by which noise is tried to be too small. Two is that of noise for adding a row under a claim
about replacing one."""
_TIMES: Final = (0.25, 0.5, 2, 4, 10)
"""Other numbers of canaries to compare, as multiples of the planned one."""
_SHARES: Final = (1.0, 0.1, 0.01)
"""Shares of the surest guesses whose accuracy is shown."""
_FALLING: Final = 0.9
"""More canaries to a coordinate are not tried once the bound is below this share of the best: by chance it
falls by less."""
_TIGHTENED_UP_TO: Final = 200.0
"""Epsilon by RDP up to which PLD is asked too: its memory grows with epsilon."""


def plan(
    epsilon: float,
    delta: float,
    steps: int,
    sample_rate: float,
    *,
    canaries: int | None = None,
    per_coordinate: int | None = None,
    coordinates: int | None = None,
    noise_multiplier: float | None = None,
    confidence: float = 0.95,
    rule: object = None,
    too_small: tuple[float, ...] = TOO_SMALL,
    black_box: bool = False,
) -> Plan:
    """Plan the audit of a training run that claims (epsilon, delta)-DP.

    If coordinates are plentiful, give `canaries`: one canary to a coordinate is then best, and
    `Plan.elements` shows what fewer coordinates cost. If they are scarce, give `coordinates`: the number of
    canaries is then `per_coordinate * coordinates`. Adaptive audits, which lose less on crowded coordinates,
    are not planned.

    Args:
        epsilon: The claimed epsilon, positive and finite.
        delta: The claimed delta.
        steps: The number of training steps.
        sample_rate: The sampling rate, above 0 and at most 1.
        canaries: The number of canaries; 1000 if neither this nor `coordinates` is given.
        per_coordinate: The number of canaries on each coordinate. By default 1, or with `coordinates` the
            power of two with the largest expected bound.
        coordinates: The number of coordinates that may carry canaries.
        noise_multiplier: The noise multiplier; by default the one that the RDP accountant asks for.
        confidence: The confidence of the bounds, strictly between 0 and 1.
        rule: `Ranked()` (the default), `Around(k)`, `Soft()`, or `Matched` with the family of this training.
            Audits of other sizes are planned with a k as many times the one that suits them.
        too_small: Factors by which the noise may be smaller than stated, each between 1 and 1000.
        black_box: Whether only the finished model is seen. The plan is then for canaries with weights of
            their own, which show most; see `canaria.blackbox`.

    Raises:
        InputError: If both `canaries` and `coordinates` are given, or if training with this noise multiplier
            does not keep the claim.

    Example:
        ```python
        found = plan(2.0, 1e-5, steps=100, sample_rate=0.1, canaries=1000)
        found.audit.noise_multiplier  # 2.42: what the RDP accountant asks for
        found.expected.mean  # 0.51: the bound to expect of correct training
        found.refuted_from  # 3.2: how many times too small the noise must be to refute the claim
        ```
    """
    claimed = checks.positive("epsilon", epsilon)
    factors = tuple(checked_factor(factor) for factor in too_small)
    crowd, count = _sizes(canaries, per_coordinate, coordinates)
    if isinstance(checked_rule(rule), Around) and coordinates is not None and per_coordinate is None:
        raise InputError(f"per_coordinate must be given for {rule}, which is for one number of canaries")
    noise = noise_multiplier
    if noise is None:
        noise = dpsgd_noise_multiplier(claimed, delta, steps, sample_rate)
    training = DpSgd(steps=steps, sample_rate=sample_rate, noise_multiplier=noise)
    audit = replace(checked_audit(training, count, crowd, delta, confidence, rule), final=black_box)
    if black_box and (crowd > 1 or coordinates is not None):
        raise InputError(
            "canaries must have weights of their own where only the finished model is seen: leave out "
            "per_coordinate and coordinates"
        )
    if black_box and isinstance(audit.rule, Soft):
        raise InputError("rule must go by ranks where only the finished model is seen: scores are no losses")
    if noise_multiplier is not None:
        _require_kept(audit, claimed)
    return _made(audit, coordinates, per_coordinate is None, claimed, factors, float(confidence))


def _made(
    audit: PlannedAudit,
    coordinates: int | None,
    open_: bool,
    claimed: float,
    factors: tuple[float, ...],
    confidence: float,
) -> Plan:
    """The plan of an audit; on given coordinates, the number to each may be `open_`."""
    # Tables have room for one factor: the one in the middle.
    factor = sorted(factors)[len(factors) // 2] if factors else None
    advised, elements = 1, []
    if coordinates is not None:
        elements = _elements(audit, coordinates, claimed, factor)
        advised = max(elements, key=lambda choice: choice.expected.mean).per_coordinate
        audit = _crowded(audit, advised, coordinates) if open_ else audit
    main = _choice(audit, claimed, factor, COMPARED)
    if not (elements or audit.final):
        elements = _elements(audit, None, claimed, factor, main)
    others = [replace(audit, rule=rule) for rule in _others(audit)]
    faults = tuple(_fault((audit, *others), claimed, tried) for tried in factors)
    growth = [main, *(_choice(larger, claimed, factor) for larger in _larger_and_smaller(audit))]
    settings = AuditSettings(
        epsilon=claimed,
        delta=audit.delta,
        **audit.dpsgd.to_dict(),
        confidence=confidence,
        canaries=audit.canaries,
        per_coordinate=audit.per_coordinate,
        coordinates=audit.coordinates,
        coordinates_given=coordinates is not None,
        rule=audit.named,
        black_box=audit.final,
    )
    return Plan(
        audit=settings,
        expected=main.expected,
        rules={audit.named: main.expected} | {other.named: other.expected(COMPARED) for other in others},
        elements=tuple(main if one.per_coordinate == main.per_coordinate else one for one in elements),
        advised=advised,
        growth=tuple(sorted(growth, key=lambda choice: choice.canaries)),
        factor=factor,
        faults=faults,
        refuted_from=_refuted_from(audit, claimed, faults),
        limits=tuple(Limit(share, audit.law().accuracy(share)) for share in _SHARES),
        perfect=_perfect(audit, confidence),
    )


def _require_kept(audit: PlannedAudit, claimed: float) -> None:
    """Refuse noise with which training would not keep its claim; at delta = 0 nothing is checked."""
    if audit.delta == 0:
        return
    training = audit.dpsgd.to_dict()
    kept = dpsgd_epsilon(delta=audit.delta, **training)
    if claimed < kept <= _TIGHTENED_UP_TO:
        # RDP is loose. Before noise is refused, it gets the benefit of the tighter accountant.
        kept = min(kept, dpsgd_epsilon(delta=audit.delta, **training, accountant="pld"))
    if kept > claimed * (1 + 1e-6):
        raise InputError(
            f"noise_multiplier must keep the claim epsilon = {claimed:g} at delta = {audit.delta:g}, got "
            f"{audit.dpsgd.noise_multiplier:g}, which gives epsilon = {kept:.4g}"
        )


def _perfect(audit: PlannedAudit, confidence: float) -> float:
    """The bound if every guess were right."""
    scores, bits = np.linspace(-1.0, 1.0, audit.canaries), np.ones(audit.canaries, dtype=np.int8)
    evidence = audit.rule(scores, np.random.default_rng(0)).reveal(bits)
    return reach(evidence, audit.delta, confidence) or 0.0


def _sizes(canaries: int | None, per_coordinate: int | None, coordinates: int | None) -> tuple[int, int]:
    """How many to a coordinate (1 if that is open), and how many in all."""
    crowd = 1 if per_coordinate is None else per_coordinate
    checks.integer("per_coordinate", crowd, 1, MOST_ON_ONE)
    if coordinates is None:
        return crowd, CANARIES if canaries is None else canaries
    if canaries is not None:
        raise InputError(
            "canaries must be left out where coordinates are given: they are per_coordinate * coordinates, "
            f"got {shown(canaries)}"
        )
    return crowd, crowd * checks.integer("coordinates", coordinates, 1, LARGEST // crowd)


def _choice(audit: PlannedAudit, claimed: float, factor: float | None, audits: int = QUICK) -> Choice:
    tell(f"{audit.canaries:,} canaries, {audit.per_coordinate} per coordinate")
    power = None if factor is None else audit.power(claimed, factor, QUICK)
    return Choice(audit.canaries, audit.per_coordinate, audit.expected(audits), power)


def _crowded(audit: PlannedAudit, per_coordinate: int, coordinates: int | None) -> PlannedAudit:
    """The same audit with another number to a coordinate: as many canaries, or on as many coordinates."""
    canaries = audit.canaries if coordinates is None else per_coordinate * coordinates
    return _resized(audit, canaries, per_coordinate)


def _resized(audit: PlannedAudit, canaries: int, per_coordinate: int) -> PlannedAudit:
    """The same audit of another size, with a number of guesses that suits it as well."""
    resized = replace(audit, canaries=canaries, per_coordinate=per_coordinate)
    if not isinstance(audit.rule, Around):
        return resized
    # In proportion: if k was twice what suits the planned audit, it is twice what suits the other.
    guesses = round(audit.rule.k / audit.around().k * resized.around().k)
    return replace(resized, rule=Around(min(max(guesses, 1), canaries)))


def _others(audit: PlannedAudit) -> list[Rule]:
    """The rules that a plan compares with its own."""
    compared: tuple[Rule, ...] = (Ranked(), audit.around(), *([] if audit.final else [Soft()]))
    return [rule for rule in compared if not isinstance(rule, type(audit.rule))]


def _elements(
    audit: PlannedAudit,
    coordinates: int | None,
    claimed: float,
    factor: float | None,
    known: Choice | None = None,
) -> list[Choice]:
    """Powers of two to a coordinate: up to 8; on given coordinates as long as the bound does not fall."""
    most = min(8, audit.canaries) if coordinates is None else min(MOST_ON_ONE, LARGEST // coordinates)
    choices: list[Choice] = [known] if known else []
    for crowd in (2**power for power in range(most.bit_length())):
        if known and crowd == known.per_coordinate:
            continue
        choices.append(_choice(_crowded(audit, crowd, coordinates), claimed, factor))
        best = max(choice.expected.mean for choice in choices)
        if coordinates is not None and choices[-1].expected.mean < _FALLING * best:
            break
    if all(choice.per_coordinate != audit.per_coordinate for choice in choices):
        choices.append(_choice(audit, claimed, factor))
    return sorted(choices, key=lambda choice: choice.per_coordinate)


def _larger_and_smaller(audit: PlannedAudit) -> list[PlannedAudit]:
    counts = dict.fromkeys(round(times * audit.canaries) for times in _TIMES)
    return [
        _resized(audit, count, audit.per_coordinate)
        for count in counts
        if audit.per_coordinate <= count <= LARGEST and count != audit.canaries
    ]


def _fault(audits: tuple[PlannedAudit, ...], claimed: float, factor: float) -> Fault:
    tell(f"noise / {factor:g}")
    training, delta = audits[0].dpsgd, audits[0].delta
    epsilon = (
        dpsgd_epsilon(training.noise_multiplier / factor, delta, training.steps, training.sample_rate)
        if delta > 0
        else None
    )
    return Fault(factor, epsilon, {audit.named: audit.power(claimed, factor, QUICK) for audit in audits})


def _refuted_from(audit: PlannedAudit, claimed: float, faults: tuple[Fault, ...]) -> float | None:
    """The smallest factor of power 0.8, to 4% and chance, by bisection between those that were tried."""
    if not faults:
        return None
    powers = {fault.factor: fault.power[audit.named] for fault in faults}
    low = max([1.0, *(factor for factor, power in powers.items() if power < POWER)])
    high = min([LARGEST_FACTOR, *(factor for factor, power in powers.items() if power >= POWER)])
    if high == LARGEST_FACTOR and audit.power(claimed, high, COMPARED) < POWER:
        return None
    # By ratios, as factors multiply. Power is that of few audits, so a closer answer would be chance.
    while high / low > 1.04:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if audit.power(claimed, middle, COMPARED) >= POWER else (middle, high)
    return high
