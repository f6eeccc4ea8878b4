"""Families: chains of claims that can be printed, read back, and told from what is not one."""

import io
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import optimize, special

from canaria import InputError
from canaria._core.arrays import Floats
from canaria._core.rounding import significant
from canaria.claims import (
    ApproximateDP,
    Claim,
    Composed,
    Curve,
    DpSgd,
    GaussianDP,
    LaplaceDP,
    families,
    to_dict,
)
from canaria.claims.families import Family, family_of, parse_family, written
from canaria.claims.families._base import require_chain

ALL = [
    families.Gaussian(),
    families.Laplace(),
    families.Approximate(1e-5),
    families.DpSgdFamily(2, 0.5),
    families.DpSgdFamily(100, 1.0),
]
each = pytest.mark.parametrize("family", ALL, ids=written)


@each
def test_a_family_is_a_chain(family: Family) -> None:
    """Profiles rise from claim to claim, at every epsilon and in both directions."""
    require_chain(family, 1000)
    epsilons = np.linspace(0, 5, 40)
    ends = family.stretches(1000)
    before = family.claim(float(ends[0])).profile(epsilons)
    for end in ends[1::6].tolist():
        after = family.claim(end).profile(epsilons)
        for low, high in zip(before, after, strict=True):
            assert (low <= high * (1 + 1e-9) + 2e-11).all()
        before = after


@each
def test_claims_print_as_they_are_and_are_read_back(family: Family) -> None:
    assert Family.from_dict(to_dict(family)) == parse_family(written(family)) == family
    for end in family.stretches(500)[::9].tolist():
        claim = family.claim(end)
        assert family.parameter(claim) == pytest.approx(end, rel=1e-12)
        assert family_of(claim) == family
        assert family.consequence(claim).split()[-1] in str(claim)


@each
def test_a_promised_epsilon_is_a_claim(family: Family) -> None:
    """The strongest that allows it: never stronger than what was promised."""
    claim = family.at(2.0, 1e-5)
    assert 2.0 <= claim.epsilon_at(1e-5) <= 2.0 * (1 + 1e-3)
    assert family.parameter(claim) > 0


def test_what_is_not_of_the_family_is_refused() -> None:
    for family, claim in (
        (families.Gaussian(), LaplaceDP(1.0)),
        (families.Laplace(), GaussianDP(1.0)),
        (families.Approximate(1e-5), ApproximateDP(1.0, 1e-6)),
        (families.DpSgdFamily(10, 0.1), DpSgd(noise_multiplier=1.0, sample_rate=0.1, steps=11)),
        (families.DpSgdFamily(10, 0.1), DpSgd(noise_multiplier=1.0, sample_rate=0.2, steps=10)),
    ):
        with pytest.raises(InputError, match="claim must be of the family of"):
            family.parameter(claim)
    assert family_of(Curve([0.0], [0.1])) is None
    assert family_of(Composed((GaussianDP(1.0), LaplaceDP(1.0)))) is None


@pytest.mark.parametrize(
    "text",
    [
        "gausian",
        "dpsgd",
        "dpsgd:steps=10",
        "dpsgd:steps=x,sample_rate=0.1",
        "gaussian:mu=1",
        "dpsgd:steps=1,steps=2",
    ],
)
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="family must be gaussian, laplace"):
        parse_family(text)
    assert parse_family("dpsgd:steps=10,sample_rate=0.1") == families.DpSgdFamily(10, 0.1)
    with pytest.raises(InputError, match="sample_rate must be above 0"):
        parse_family("dpsgd:steps=10,sample_rate=2")
    with pytest.raises(InputError, match="family must be of a kind out of"):
        Family.from_dict({"kind": "nonsense"})


@dataclass(frozen=True)
class Broken(Family):
    """Claims that are not nested: the second direction falls while the first rises."""

    name: ClassVar[str] = "broken-for-a-test"

    def claim(self, parameter: float) -> Claim:
        return Curve([0.0, 2.0], [0.1 * parameter, 0.01 / parameter])

    def parameter(self, claim: Claim) -> float:
        return 1.0

    def stretches(self, elements: int) -> Floats:
        return np.array([1.0, 2.0])

    def to_dict(self) -> dict[str, Any]:
        return {}

    @property
    def condition(self) -> str:
        return "it is broken"

    def consequence(self, claim: Claim) -> str:
        return "nothing"


def test_a_family_that_is_no_chain_is_refused() -> None:
    with pytest.raises(InputError, match="must be a chain"):
        require_chain(Broken(), 100)


def npy(*array: Any, **arrays: Any) -> bytes:
    """An array as a file, or several as one."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays) if arrays else np.save(buffer, *array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("noise", "rate", "delta"), [(100, 0.1, 1e-5), (0.5, 1e-6, 1e-9), (5, 0.01, 1e-5), (1, 0.5, 1e-3)]
)
def test_the_least_epsilon_of_one_step_is_below_the_exact_one(
    noise: float, rate: float, delta: float
) -> None:
    """Also where epsilon is as small as the interval of losses."""

    def deltas(epsilon: float) -> float:
        """Of adding an element and of removing one, in closed form, whichever is larger."""
        found = []
        for ratio, sign in ((math.exp(epsilon), 1), (math.exp(-epsilon), -1)):
            if ratio <= 1 - rate:
                found.append(1 - ratio if sign > 0 else 0.0)
                continue
            x = noise**2 * math.log((ratio - (1 - rate)) / rate) + 0.5
            without, with_it = special.ndtr(-sign * x / noise), special.ndtr(-sign * (x - 1) / noise)
            mixed = (1 - rate) * without + rate * with_it
            found.append(mixed - ratio * without if sign > 0 else without - mixed / ratio)
        return max(found)

    exact = optimize.brentq(lambda epsilon: deltas(epsilon) - delta, 0, 50, xtol=1e-13)
    least = DpSgd(noise_multiplier=noise, sample_rate=rate, steps=1).least_epsilon_at(delta)
    assert exact - 1.1e-3 <= least <= exact


def test_curves_of_dpsgd_are_kept_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process reads them; a broken file, or a folder that cannot be written, does no harm."""
    from canaria.claims import dpsgd as home

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    claim = DpSgd(noise_multiplier=1.25, sample_rate=0.3, steps=3)
    home._lines.cache_clear()
    first = claim.lines()
    (kept,) = (tmp_path / "canaria").iterdir()
    home._lines.cache_clear()
    monkeypatch.setattr(home._loss, "of_dpsgd", None)
    assert np.array_equal(claim.lines().deltas, first.deltas)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    good = kept.read_bytes()
    others = [npy(np.float64(3)), npy(np.ones(9)), npy(np.ones((5, 0))), npy(first=first.deltas)]
    huge = good.replace(b"(3, 220), }      ", b"(3, 999999999), }")
    assert huge != good
    for content in (b"", b"nonsense", good[:-8], huge, *others):
        kept.write_bytes(content)
        home._lines.cache_clear()
        assert np.array_equal(claim.lines().deltas, first.deltas)
    halved = np.load(kept)
    halved[1:, 5] *= 0.5
    np.save(kept, halved)
    home._lines.cache_clear()
    assert np.array_equal(claim.lines().deltas, first.deltas), "deltas that do not fall are not believed"
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    home._lines.cache_clear()
    assert np.array_equal(claim.lines().deltas, first.deltas)
    home._lines.cache_clear()


@pytest.mark.parametrize(
    ("rate", "steps", "noise"), [(0.1, 100, 2.4), (0.01, 1000, 1.0), (0.5, 1, 0.8), (0.02, 400, 3.0)]
)
def test_the_epsilon_of_dpsgd_is_rounded_down(rate: float, steps: int, noise: float) -> None:
    """Below what an interval eight times as fine gives, which is itself too large; and close to it."""
    from canaria.claims import _loss

    claim = DpSgd(noise_multiplier=noise, sample_rate=rate, steps=steps)
    fine = _loss.of_dpsgd(noise, rate, steps, _loss.interval_for(steps) / 8)
    for delta in (1e-2, 1e-5):
        least, truth = claim.least_epsilon_at(delta), float(fine.get_epsilon_for_delta(delta))
        assert least <= truth <= claim.epsilon_at(delta) + 1e-9
        assert least >= 0.97 * truth
    assert claim.least_epsilon_at(0.0) == np.inf


def test_what_takes_too_long_is_refused() -> None:
    for noise, rate, steps in ((0.001, 0.5, 1), (0.01, 0.01, 10), (10.0, 0.001, 10**9)):
        with pytest.raises(InputError, match="takes too long to compute"):
            DpSgd(noise_multiplier=noise, sample_rate=rate, steps=steps).delta_at(1.0)


def test_significant_digits_round_down() -> None:
    assert significant(0.123456) == 0.12345
    assert significant(9.99999) == 9.9999
    assert significant(1e-7 / 3) == 3.3333e-08
