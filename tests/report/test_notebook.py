"""What notebooks show, and charts by themselves."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from canaria import Counts, InputError, combine, lower_bound, plan, play
from canaria.mechanisms import CountInSets
from canaria.report import compare
from tests.report.samples import NASTY, of_every_kind, of_every_verdict, scored

SHOWN = {
    "bound": lambda: lower_bound(Counts(73, 100, 1000), 1e-5, about=NASTY),
    "bound of nothing": lambda: lower_bound(Counts(50, 100, 1000), 1e-5),
    "result": lambda: scored(name=NASTY, facts={NASTY: NASTY}),
    "together": lambda: combine({NASTY: Counts(90, 100, 1000), "other": Counts(60, 100, 1000)}),
    "transcript": lambda: play(CountInSets(4), n=80, rng=0),
    "plan": lambda: plan(epsilon=2.0, delta=1e-5, steps=100, sample_rate=0.1),
    "comparison": lambda: compare([scored(name=NASTY), scored(2.0)]),
    "chart": lambda: scored().plot("scores"),
}
"""Made when a test asks for them: a plan takes seconds, which every collection would pay."""


@pytest.mark.parametrize("name", SHOWN)
def test_notebooks_are_shown_whole_markup_without_scripts(name: str) -> None:
    shown = SHOWN[name]()._repr_html_()
    text = "".join(ElementTree.fromstring(f"<div>{shown}</div>").itertext())
    assert "<script" not in shown
    assert " class=" not in shown
    wanted = {
        "bound": "0.606",
        "bound of nothing": "no signal",
        "result": "The claim ε = 4 is not refuted",
        "together": "ε ≥ 1.542 at δ = 0, with 95% confidence",
        "transcript": "of 80",
        "plan": "noise / 3 refuted",
        "comparison": "all of them at once",
        "chart": "excluded",
    }
    assert wanted[name] in text or (name == "transcript" and "80" in text)


def test_a_training_audit_is_drawn_with_its_rungs() -> None:
    every = of_every_verdict()
    for name in ("refuted", "withdrawn", "training"):
        for result in every[name]:
            about = result.plot().about
            assert ("under each assumption" in about) == bool(result.rungs)


@pytest.mark.parametrize("what", ["claim", "confidence", "guesses", "scores", "gaps"])
def test_every_chart_is_a_file_of_its_own(tmp_path: Path, what: str) -> None:
    path = scored(name=NASTY).plot(what).save(tmp_path / "chart.svg")
    drawn = ElementTree.parse(path).getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(drawn.attrib["height"]) > 100
    assert "var(--" not in path.read_text()


def test_what_is_not_there_cannot_be_drawn(tmp_path: Path) -> None:
    counts = lower_bound(Counts(73, 100, 1000)).result()
    with pytest.raises(InputError, match="what must be one of claim, confidence, guesses for this result"):
        counts.plot("scores")
    with pytest.raises(InputError, match=r"a chart is written as SVG \(\.svg\)"):
        counts.plot().save(tmp_path / "chart.png")


def test_results_of_every_kind_show_themselves() -> None:
    for result in of_every_kind():
        ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")
