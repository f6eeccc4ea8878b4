"""The report in a real browser, and what it holds."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from canaria import Counts, Result, audit_scores, lower_bound
from canaria.bounds.parts import Ladder, LadderStep
from canaria.claims import ApproximateDP
from canaria.evidence import Split
from canaria.report import page_of as page_of_results
from canaria.report.page import page as page_of
from canaria.report.section import explain, told_apart
from canaria.training.canaries.designs import Dirac
from tests.report.browser import MISFITS, UNFOLD, launched, opened, watched
from tests.report.samples import NASTY, of_every_kind, of_every_verdict, scored
from tests.training.simulated import simulated


def page(results: list[Result], title: str | None = None) -> str:
    return page_of([explain(result) for result in results], title)


@pytest.mark.slow
def test_charts_are_drawn_and_nothing_leaves_the_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(of_every_kind()))
    with opened(path, 390, "dark") as seen:
        assert seen.ask("document.querySelectorAll('svg.chart[role=img][aria-label]').length") == 38
        assert seen.ask(
            "[...document.querySelectorAll('.chart')].every(drawn => drawn.querySelector('title'))"
        )
        assert seen.messages == []
        assert seen.requests == [path.as_uri()]
        assert seen.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
        seen.page.emulate_media(media="print")
        assert seen.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_a_printed_page_is_unfolded(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page([scored()]))
    seen_at = "[...document.querySelectorAll('details .chart')].map(drawn => drawn.checkVisibility())"
    with opened(path) as seen:
        assert not any(seen.ask(seen_at))
        seen.page.emulate_media(media="print")
        assert all(seen.ask(seen_at))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: page(results) for name, results in of_every_verdict().items()}


WIDTHS = (360, 390, 768, 1200)


@pytest.mark.parametrize(
    ("script", "widths"),
    [
        (False, (360, 1200)),
        pytest.param(False, WIDTHS, marks=pytest.mark.full),
        pytest.param(True, WIDTHS, marks=pytest.mark.full),
    ],
)
@pytest.mark.slow
def test_every_verdict_fits_every_screen(
    tmp_path: Path, pages: dict[str, str], script: bool, widths: tuple[int, ...]
) -> None:
    """Nothing is cut off, every chart is visible, nothing is logged or asked for, folded or not."""
    with launched() as browser:
        seen = watched(browser, script=script)
        for place, (name, text) in enumerate(pages.items()):
            path = tmp_path / f"{place}.html"
            path.write_text(text)
            seen.page.goto(path.as_uri())
            folded = seen.ask("document.querySelectorAll('details:not([open])').length")
            assert folded >= 4, name
            for width, scheme in product(widths, ("light", "dark")):
                seen.page.set_viewport_size({"width": width, "height": 900})
                seen.page.emulate_media(color_scheme=scheme)
                if (width, scheme) == (360, "light"):
                    assert not seen.ask(MISFITS)["faults"], f"{name}, folded"
                    seen.ask(UNFOLD)
                found = seen.ask(MISFITS)
                assert not found["faults"], f"{name}, {width} px, {scheme}: {found['faults']}"
                assert found["charts"] == text.count('class="chart"') >= 2
            assert seen.requests.pop() == path.as_uri()
            assert seen.requests == seen.messages == [], name


def test_two_audits_take_at_most_300_kb() -> None:
    (largest,) = of_every_verdict()["training"]
    assert len(page([largest, scored()]).encode()) <= 300_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refuted", "do not rely on the claimed ε"),
        (
            "not refuted; not as stated",
            "training does not match what was stated; the verdict says how",
        ),
        ("as stated", "measured noise 1.11, stated 1.12: training matches what was stated"),
        ("contradicted", "training does not match what was stated"),
        ("contradicted, noise as stated", "the noise is as stated, but training is not"),
        ("refuted with an assumption", "but refuted if it is DP-SGD with 100 steps"),
        ("not refuted", "this audit does not settle it"),
        ("nothing shown", "this audit shows nothing"),
        ("no claim", "name the ε that is promised"),
    ],
)
def test_box_on_top_says_what_a_manager_needs(pages: dict[str, str], name: str, words: str) -> None:
    box = pages[name].partition('<div class="verdict')[2].partition("</div>")[0]
    assert words in box
    assert 3 <= box.count("<p") <= 4


def test_results_of_the_same_name_are_told_apart() -> None:
    text = page_of_results([scored(), scored(2.0)])
    assert "scores (1)</a>" in text
    assert "scores (2)</a>" in text
    assert told_apart(["a", "a", "b"], ["x/r.json", "y/r.json", "-"]) == ["x/r.json", "y/r.json", "b"]
    assert told_apart(["a", "a"], ["-", "r.json"]) == ["standard input", "r"]


@pytest.mark.slow
def test_text_of_results_is_never_run(tmp_path: Path) -> None:
    """Also by the policy: a script that got in could not run."""
    ladder = Ladder(NASTY, 2.0, (LadderStep(NASTY, 1.0), LadderStep("chance", 0.5)), NASTY)
    bound = replace(scored().bound, rule=NASTY, about=NASTY)
    nasty = Result(
        bound,
        ApproximateDP(4.0, bound.delta),
        name=NASTY,
        histogram=None,
        ladder=ladder,
        conformance=None,
        facts={NASTY: NASTY},
        seed=1,
        command=NASTY,
        versions={NASTY: NASTY},
    )
    path = tmp_path / "report.html"
    text = page([nasty, nasty], title=NASTY)
    path.write_text(text)
    body = text.partition("<main>")[2]
    assert "<img" not in body
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in body
    with opened(path) as seen:
        assert seen.messages == []
        assert seen.requests == [path.as_uri()]
        assert seen.ask("document.querySelector('h1').textContent") == NASTY
        assert seen.ask("document.querySelectorAll('script').length") == 0
        seen.ask("document.body.appendChild(document.createElement('script')).textContent = 'window.ran = 1'")
        assert seen.ask("window.ran") is None
        assert "Content Security Policy" in seen.messages[0]


def test_page_says_what_a_reader_needs() -> None:
    text = page([simulated(Dirac(400, 2), 0).report(claimed=2.0, delta=1e-5, name="digits")])
    for words in (
        "The claim ε\u00a0=\u00a02 is not refuted",
        "with 95% confidence",
        "By confidence",
        "By number of guesses",
        "interference",
        "how to narrow it",
        "Conformance",
        "consistent with a correct implementation",
        "independent fair coins",
        "An excluded element contributed nothing",
        "fixed in advance, before the bits were revealed",
        "seed",
        "versions",
        "sha256:",
        "How to read this",
    ):
        assert words in text, words


def test_several_results_hold_together_by_the_union_bound() -> None:
    assert "at once with at least 90%" in page([scored(), scored(2.0)])


@pytest.mark.slow
def test_rows_of_the_same_name_are_all_drawn(tmp_path: Path) -> None:
    steps = tuple(LadderStep(name, 1.0) for name in ("constructor", "toString", "__proto__", "same", "same"))
    ladder = Ladder("hasOwnProperty", 2.0, (*steps, LadderStep("the bound", 0.5)), "")
    path = tmp_path / "report.html"
    path.write_text(page([replace(scored(), ladder=ladder)]))
    with opened(path) as seen:
        assert seen.messages == []
        assert seen.ask("document.querySelectorAll('svg[aria-label*=\"gap by gap\"] rect[rx]').length") == 8


def test_no_bound_is_rounded_up_on_the_page() -> None:
    """0.13318... and, at 50%, 2.1288...: what charts and tables say is cut, not rounded."""
    text = page([Result(lower_bound(Counts(90, 100, 100)), ApproximateDP(5.0, 0))])
    assert "2.128" in text
    assert "2.129" not in text


def test_curves_that_take_long_are_shorter() -> None:
    """The bound of sixty audits together is shown at fewer confidences than that of one."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 2000)
    one = audit_scores(rng.normal(bits), bits, rng=1).evidence
    long = Result(lower_bound(Split((one,) * 60, (1 / 61,) * 60)))
    quick, slow = explain(Result(lower_bound(one))), explain(long)
    assert 1 <= len(slow.by_confidence) < len(quick.by_confidence)
    assert slow.by_confidence[0][0] >= 0.5
