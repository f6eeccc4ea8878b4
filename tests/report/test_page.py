"""The report in a real browser, and what it holds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from canaria import Counts, Result, audit_scores, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Split
from canaria.report.page import page as page_of
from canaria.report.section import explain
from canaria.results.parts import Ladder, Step
from canaria.training.canaries import Dirac
from tests.report.browser import opened
from tests.report.samples import NASTY, of_every_kind, scored
from tests.training.simulated import simulated


def page(results: list[Result], title: str | None = None) -> str:
    return page_of([explain(result) for result in results], title)


def test_charts_are_drawn_and_nothing_leaves_the_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(of_every_kind()))
    for width, scheme in ((1100, "light"), (390, "dark")):
        _is_drawn(path, width, scheme)


def _is_drawn(path: Path, width: int, scheme: str) -> None:
    with opened(path, width, scheme) as seen:
        places, drawn = seen.ask(
            "[document.querySelectorAll('.chart').length, document.querySelectorAll('.chart svg').length]"
        )
        assert places == drawn == 37
        assert seen.ask(
            "[...document.querySelectorAll('.chart svg')].every(svg => svg.querySelector('path'))"
        )
        assert seen.ask("document.documentElement.scrollWidth") == width
        assert seen.messages == []
        assert seen.requests == [path.as_uri()]
        paper = seen.ask("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 29)")
        seen.page.emulate_media(media="print")
        assert seen.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_text_of_results_is_never_run(tmp_path: Path) -> None:
    """Also by the policy: a script that got in could not run."""
    ladder = Ladder(NASTY, 2.0, (Step(NASTY, 1.0), Step("chance", 0.5)), NASTY)
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
    body = text.partition("<main>")[2].partition("<script")[0]
    assert "<img" not in body
    assert "{{ 7 * 7 }}" in body
    with opened(path) as seen:
        assert seen.messages == []
        assert seen.requests == [path.as_uri()]
        assert seen.ask("document.querySelector('h1').textContent") == NASTY
        assert seen.ask("document.querySelectorAll('script').length") == 3
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


def test_rows_named_after_what_javascript_knows_are_drawn(tmp_path: Path) -> None:
    steps = tuple(Step(name, 1.0) for name in ("constructor", "toString", "__proto__", "same", "same"))
    ladder = Ladder("hasOwnProperty", 2.0, (*steps, Step("the bound", 0.5)), "")
    path = tmp_path / "report.html"
    path.write_text(page([replace(scored(), ladder=ladder)]))
    with opened(path) as seen:
        assert seen.messages == []
        bars = "document.querySelectorAll('#chart-1-gaps .mark-rect path').length"
        assert seen.ask(bars) == 8


def test_no_bound_is_rounded_up_on_the_page() -> None:
    """0.13318... and, at 50%, 2.1288...: what charts and tables say is cut, not rounded."""
    text = page([Result(lower_bound(Counts(90, 100, 100)), ApproximateDP(5.0, 0))])
    assert "2.128" in text
    assert "2.129" not in text


def test_specifications_are_json_without_a_tag() -> None:
    block = page([scored()]).partition('id="charts">')[2].partition("</script>")[0]
    assert "<" not in block
    assert set(json.loads(block)) == {
        f"chart-1-{n}" for n in ("claim", "confidence", "guesses", "scores", "gaps")
    }


def test_curves_that_take_long_are_shorter() -> None:
    """The bound of sixty audits together is shown at fewer confidences than that of one."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 2000)
    one = audit_scores(rng.normal(bits), bits, rng=1).evidence
    long = Result(lower_bound(Split((one,) * 60, (1 / 61,) * 60)))
    quick, slow = explain(Result(lower_bound(one))), explain(long)
    assert 1 <= len(slow.by_confidence) < len(quick.by_confidence)
    assert slow.by_confidence[0][0] >= 0.5
