"""Results side by side: table, forest plot, CSV, and on the command line."""

import csv
import io
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from canaria import Counts, InputError, Result, lower_bound
from canaria.claims import ApproximateDP
from canaria.claims.families import Gaussian
from canaria.report import compare
from canaria.report.formats import write_comparison
from tests.cli.command import canaria
from tests.report.browser import MISFITS, launched, watched
from tests.report.samples import NASTY, of_every_kind, of_every_verdict, scored


def _counted(right: int, claimed: float | None = None, delta: float = 0.0, name: str = "") -> Result:
    claim = None if claimed is None else ApproximateDP(claimed, delta)
    return Result(lower_bound(Counts(right, 100, 100), delta), claim, name=name or f"{right} right")


def test_it_prints_as_a_table_and_a_forest_plot() -> None:
    shown = str(compare([_counted(60), _counted(90, 1.0), _counted(90, 2.0, name="other")])).splitlines()
    assert shown[:4] == [
        "audit     claim  bound      guesses right  elements  verdict",
        "60 right  –      ε ≥ 0.051  60 of 100      100       no claim",
        "90 right  ε = 1  ε ≥ 1.630  90 of 100      100       refuted",
        "other     ε = 2  ε ≥ 1.630  90 of 100      100       not refuted",
    ]
    plotted = shown[5:8]
    assert [line.count("◆") for line in plotted] == [0, 1, 1]
    assert plotted[1].index("◆") < plotted[1].index("├")
    assert plotted[2].index("├") < plotted[2].index("◆")
    assert len({len(line) for line in plotted}) == 1


def test_what_is_not_alike_is_said() -> None:
    alike, apart = compare([_counted(90), _counted(80)]), compare([_counted(90), _counted(80, delta=1e-5)])
    assert "all of them at once with at least 90%" in alike.note
    assert "Their δ differ" not in alike.note
    assert "Their δ differ" in apart.note


def test_csv_holds_the_numbers_and_no_formula() -> None:
    results = [
        *of_every_kind(),
        _counted(90, math.inf, name="=HYPERLINK(1)"),
        _counted(90, name=" =1+1"),
        scored(name='a,b\n"c"'),
    ]
    rows = list(csv.DictReader(io.StringIO(compare(results).to_csv())))
    assert len(rows) == len(results)
    for row, result in zip(rows, results, strict=True):
        assert float(row["epsilon"]) == result.bound.epsilon
        assert int(row["guesses"]) == result.bound.tally.taken
    assert rows[-3]["name"] == "'=HYPERLINK(1)"
    assert rows[-2]["name"] == "' =1+1"
    assert rows[-1]["name"] == 'a,b "c"'


@pytest.mark.parametrize("ending", ["html", "md", "txt", "csv", "svg"])
def test_every_format_is_written_and_takes_no_orders(tmp_path: Path, ending: str) -> None:
    results = [*of_every_kind(), scored(name=NASTY + "\x1b[2J"), scored(name="\u202e" * 100)]
    out = tmp_path / f"compared.{ending}"
    write_comparison(out, compare(results))
    written = out.read_text()
    assert "<script" not in written or ending in ("csv", "txt")
    assert "\x1b" not in written
    assert "\u202e" not in written
    if ending == "svg":
        assert ElementTree.fromstring(written).tag.endswith("svg")


def test_names_that_differ_at_their_end_stay_apart() -> None:
    names = [f"results-cifar10-wideresnet-16-4-epsilon-8-seed-{seed}" for seed in (1, 2)]
    shown = str(compare([_counted(90, name=name) for name in names])).splitlines()
    assert shown[1].split()[0] != shown[2].split()[0]


def test_families_beside_others_are_named() -> None:
    family = Result(lower_bound(Counts(900, 1000, 1000), 1e-5, family=Gaussian()), name="family")
    both = compare([family, _counted(90, delta=1e-5)])
    assert "Some hold only for mechanisms of a family" in both.note
    assert "family of Gaussian DP" in both.chart.svg


def test_unknown_formats_and_nothing_to_compare() -> None:
    with pytest.raises(InputError, match=r"a comparison is HTML \(\.html\)"):
        write_comparison(Path("compared.pdf"), compare([_counted(90)]))
    with pytest.raises(InputError, match="at least one result, got none"):
        compare([])


def test_results_or_bounds_in_a_list_or_by_name() -> None:
    bound = lower_bound(Counts(90, 100, 100))
    assert [row.name for row in compare({"x": bound, "y": _counted(80)}).rows] == ["x", "y"]
    assert [row.name for row in compare([bound, _counted(80)]).rows] == ["audit", "80 right"]
    for wrong in ([1], "a.json", {"x": 3}, 7):
        with pytest.raises(InputError, match="results must be"):
            compare(wrong)


def test_on_the_command_line(tmp_path: Path) -> None:
    first = str(scored(2.0).save(tmp_path / "before.json"))
    second = str(scored(4.0).save(tmp_path / "after.json"))
    ran = canaria("compare", first, second)
    assert ran.code == 0
    assert re.search(r"^before +ε = 2 ", ran.out, re.M)
    assert re.search(r"^after +ε = 4 ", ran.out, re.M)
    told = json.loads(canaria("compare", first, second, "--json").out)
    assert [row["verdict"] for row in told] == ["refuted", "not refuted"]
    out = tmp_path / "compared.csv"
    assert canaria("compare", first, second, "-o", str(out)).out.startswith("comparison written to")
    assert out.read_text().startswith("name,epsilon,delta,")
    assert "--out must not be one of the files that are read" in canaria("compare", first, "-o", first).err
    Path(first).write_text(Path(first).read_text().replace('"name": "', '"name": "another '))
    assert canaria("compare", first, second).code == 2


@pytest.mark.slow
def test_every_verdict_fits_a_phone(tmp_path: Path) -> None:
    path = tmp_path / "compared.html"
    write_comparison(path, compare([result for results in of_every_verdict().values() for result in results]))
    with launched() as browser:
        seen = watched(browser, script=False)
        seen.page.goto(path.as_uri())
        for width in (360, 1200):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.ask(MISFITS) == {"faults": [], "charts": 1}
        assert seen.messages == []
