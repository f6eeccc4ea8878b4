"""A new kind of evidence is one class: everything works with it, and no other file knows it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from canaria import Counts, InputError, Result, assert_private, audit_scores, combine, lower_bound, plan
from canaria.bounds.reach import reach
from canaria.claims import ApproximateDP
from canaria.evidence import AuditWarning, Evidence, Split, Tally, to_dict
from canaria.files import check, read_checked, read_result
from canaria.lab.validity import Foreign, laboratory
from canaria.mechanisms import RandomizedResponse
from canaria.report.page import page
from canaria.report.section import explain
from tests.evidence.own_kind import Streak, Streaks, audit


def seen() -> Streak:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 200)
    bound = audit_scores(np.where(bits > 0, 1.0, -1.0) * (5 + rng.random(200)), bits, rule=Streaks(), rng=0)
    assert isinstance(bound.evidence, Streak)
    assert bound.rule == "Streaks()"
    return bound.evidence


def test_it_has_a_bound() -> None:
    bound = lower_bound(seen())
    by_hand = -np.log(0.05 ** (-1 / 200) - 1)
    assert by_hand - 0.01 <= bound.epsilon <= by_hand
    assert lower_bound(seen(), delta=1e-3).epsilon < bound.epsilon


def test_it_is_written_read_back_and_verified(tmp_path: Path) -> None:
    result = Result(lower_bound(seen(), 1e-5, rule="Streaks()"), ApproximateDP(1.0, 1e-5))
    stored = read_result(result.save(tmp_path / "result.json"))
    assert check(stored).holds
    assert Evidence.from_dict(to_dict(seen())) == seen()
    assert read_checked(tmp_path / "result.json").result.refuted


def test_it_has_a_report_that_uses_no_formula_of_another_kind() -> None:
    section = explain(Result(lower_bound(seen()), ApproximateDP(1.0, 0)))
    assert section.by_guesses == ()
    assert section.derivation == ()
    assert "refuted" in page([section])


def test_it_goes_together_with_others() -> None:
    both = combine({"streak": seen(), "count": Counts(60, 100, 200)})
    assert both.best == "streak"
    assert both.bound.epsilon < lower_bound(seen()).epsilon
    parts = Split((seen(), Counts(60, 100, 200)), (0.5, 0.5))
    assert parts.clearest(ApproximateDP(1.0, delta=0)) == seen()
    assert explain(Result(lower_bound(parts))).derivation == ()


def test_it_can_be_asserted_and_how_far_it_reaches_is_not_known() -> None:
    assert reach(seen(), 0.0, 0.95) is None
    with pytest.raises(AssertionError, match="REFUTED"):
        assert_private(seen(), 1.0, 0)
    with pytest.warns(AuditWarning, match="no guess was taken"):
        assert assert_private(RandomizedResponse(1.0), 1.0, 0, rule=Streaks()).epsilon < 1


def test_no_plan_is_made_for_it() -> None:
    with pytest.raises(
        InputError,
        match=r"rule must be Ranked\(\), Around\(k\), Soft\(\) or Matched\(\.\.\.\) for a plan, got Streaks\(\)",
    ):
        plan(epsilon=2.0, delta=1e-5, steps=100, sample_rate=0.1, rule=Streaks())


def test_it_is_not_believed_where_bits_decide_what_is_guessed() -> None:
    assert not seen().holds_adaptively(200)


def test_the_laboratory_plays_it(tmp_path: Path) -> None:
    """A streak is valid: at most 5% of audits claim more than the truth; false alarm below 1e-6."""
    lab = laboratory([Foreign("streaks", audit)], ["rr-1"], audits=200, claims=0, seed=3)
    (cell,) = lab.run().cells
    assert cell.false <= stats.binom.isf(1e-6, 200, 0.05)


def test_a_kind_cannot_take_the_name_of_another() -> None:
    with pytest.raises(TypeError, match="a kind named Counts already"):

        class Counts(Evidence):
            pass


def test_a_kind_must_define_what_has_no_default() -> None:
    class Half(Evidence):
        def tally(self, claim: Any) -> Tally:
            return Tally(0, 0)

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


def test_not_even_a_module_of_its_own_makes_a_name_free() -> None:
    with pytest.raises(TypeError, match="a kind named Ranking already"):
        type("Ranking", (Evidence,), {"__module__": "elsewhere", "__qualname__": "Ranking"})
