"""What the measurements say: who holds, who shows more, which targets are met."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from side_by_side.field import HINDSIGHT, RANKED, Auditor

MEDIAN_RATIO = 1.25
OF_HINDSIGHT = {1.0: 0.78, 2.0: 0.86, 3.0: 0.90}
OVER_JAX, OVER_LOOP = 100, 10_000
AT = str(10**5)
"""The size at which speeds are compared, as JSON has it."""
FORMULA = "published"


class Shown(NamedTuple):
    """The mean bound of an auditor in a setting, its standard error, and of how many audits."""

    mean: float
    error: float
    audits: int


class Target(NamedTuple):
    """What must hold, whether it does, and what was measured."""

    text: str
    met: bool
    measured: str


@dataclass(frozen=True)
class Findings:
    """All parts, as kept."""

    known: dict[str, Any]

    @cached_property
    def settings(self) -> list[dict[str, Any]]:
        """What was audited."""
        return list(self.known["tightness"]["settings"])

    @cached_property
    def auditors(self) -> list[Auditor]:
        """Ours, hindsight, and every method of every peer."""
        rows = self.known["tightness"]["answers"]
        return [Auditor(row["peer"], row["name"], row["gaussian"]) for row in rows]

    @cached_property
    def answers(self) -> dict[Auditor, list[dict[str, Any]]]:
        """Bounds and seconds by setting, or why there are none."""
        rows = self.known["tightness"]["answers"]
        return {auditor: row["cells"] for auditor, row in zip(self.auditors, rows, strict=True)}

    def cases(self, auditor: Auditor) -> list[dict[str, Any]]:
        """Rates of false claims; from the second look where there was one."""
        second = self.known.get("second look", {})
        return list(second.get(str(auditor)) or self.known["validity"].get(str(auditor), []))

    def caught(self, auditor: Auditor) -> dict[str, Any] | None:
        """The case in which it over-claims most clearly, if there is one."""
        flagged = [case for case in self.cases(auditor) if case["flagged"]]
        return max(flagged, key=lambda case: case["low"], default=None)

    def holds(self, auditor: Auditor) -> bool:
        """Whether it claims a bound for every mechanism and was not caught claiming too much."""
        return auditor != HINDSIGHT and not auditor.gaussian and self.caught(auditor) is None

    def shown(self, auditor: Auditor, place: int) -> Shown | None:
        """What it showed in a setting."""
        bounds = np.array(self.answers[auditor][place]["bounds"])
        if len(bounds) == 0:
            return None
        error = float(bounds.std(ddof=1)) / math.sqrt(len(bounds)) if len(bounds) > 1 else 0.0
        return Shown(float(bounds.mean()), error, len(bounds))

    def ahead(self, auditor: Auditor, place: int) -> float | None:
        """By how many standard errors it shows more than ours, on the same audits; None without an answer."""
        theirs, ours = self._side_by_side(auditor, place)
        if len(theirs) == 0:
            return None
        more = theirs - ours
        error = float(more.std(ddof=1)) / math.sqrt(len(more)) if len(more) > 1 else 0.0
        mean = float(more.mean())
        return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0

    def rivals(self) -> list[Auditor]:
        """On whom the comparison rests: who hold and in some setting are the best peer or ahead of ours."""
        places = range(len(self.settings))
        best = [self.best_peer(place, left_out) for place in places for left_out in ("", FORMULA)]
        ahead = [one for one in self.auditors if any(self._shows_more(one, place) for place in places)]
        return list(dict.fromkeys([pair[0] for pair in best if pair is not None] + ahead))

    def best_peer(self, place: int, left_out: str = "") -> tuple[Auditor, Shown] | None:
        """The method of a peer that holds and shows the most."""
        rivals = [one for one in self.auditors if one != RANKED and one.peer != left_out and self.holds(one)]
        found = [(one, self.shown(one, place)) for one in rivals]
        answered = [(one, shown) for one, shown in found if shown is not None]
        return max(answered, key=lambda pair: pair[1].mean, default=None)

    def ratio(self, place: int, left_out: str = "") -> float | None:
        """Ours over the best peer, on the audits that it got to; None where neither shows anything."""
        best = self.best_peer(place, left_out)
        if best is None:
            return None
        theirs, ours = self._side_by_side(best[0], place)
        if not theirs.any():
            return math.inf if ours.any() else None
        return float(ours.mean() / theirs.mean())

    def of_hindsight(self, place: int) -> float | None:
        """Ours over the best number of guesses in hindsight."""
        ours, most = self.shown(RANKED, place), self.shown(HINDSIGHT, place)
        return None if ours is None or most is None or most.mean == 0 else ours.mean / most.mean

    def targets(self) -> list[Target]:
        """All of them."""
        return [self._ahead(), self._median(), *self._hindsight(), *self._counts(), *self._scores()]

    def _ahead(self) -> Target:
        lost = []
        for auditor in self.auditors:
            places = [place for place in range(len(self.settings)) if self._shows_more(auditor, place)]
            told = [f"{self.settings[place]['name']} ({self._beside(auditor, place)})" for place in places]
            if told:
                lost.append(f"`{auditor}` in {'; '.join(told)}")
        counted = sum(self.ratio(place) is not None for place in range(len(self.settings)))
        text = "`Ranked`, untuned, shows at least as much as every valid method of a peer, in every setting"
        return Target(
            text, not lost, f"less than {'; and than '.join(lost)}" if lost else f"{counted} settings"
        )

    def _shows_more(self, auditor: Auditor, place: int) -> bool:
        errors = self.ahead(auditor, place) if self.holds(auditor) else None
        return errors is not None and errors > 1

    def _beside(self, auditor: Auditor, place: int) -> str:
        theirs, ours = self._side_by_side(auditor, place)
        return f"{ours.mean():.2f} and {theirs.mean():.2f} in {len(theirs)} audits"

    def _side_by_side(self, auditor: Auditor, place: int) -> tuple[Any, Any]:
        theirs, ours = (np.array(self.answers[one][place]["bounds"]) for one in (auditor, RANKED))
        return theirs, ours[: len(theirs)]

    def _median(self) -> Target:
        ratios, libraries = (
            [one for place in range(len(self.settings)) if (one := self.ratio(place, left_out)) is not None]
            for left_out in ("", FORMULA)
        )
        median, others = float(np.median(ratios)), float(np.median(libraries))
        text = f"ours over the best valid method of a peer: median at least {MEDIAN_RATIO}"
        told = (
            f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); {others:.2f} "
            f"({min(libraries):.2f} to {max(libraries):.2f}) over the libraries alone, without the published "
            "formula, for which somebody has to choose the number of guesses (docs/hindsight.md: no valid "
            "rule always matches them all)"
        )
        return Target(text, median >= MEDIAN_RATIO, told)

    def _hindsight(self) -> list[Target]:
        found = []
        for shift, least in OF_HINDSIGHT.items():
            shares = {
                setting["n"]: share
                for place, setting in enumerate(self.settings)
                if setting["shift"] == shift and setting["n"] >= 1000
                if (share := self.of_hindsight(place)) is not None
            }
            text = f"of the best number of guesses in hindsight, shift {shift:g}: at least {least:.0%}"
            measured = ", ".join(f"{share:.1%} (n = {n:,})" for n, share in shares.items())
            found.append(Target(text, min(shares.values()) >= least, measured))
        return found

    def _counts(self) -> list[Target]:
        taken = {row["what"]: row["seconds"].get(AT) for row in self.known["speed"]["counts"]}
        ours = next(seconds for what, seconds in taken.items() if what.startswith("canaria"))
        found = []
        for name, least in (("jax-privacy", OVER_JAX), ("published", OVER_LOOP)):
            text = f"a bound from 10⁵ guesses: {least:,} times as fast as {name}"
            theirs = [seconds for what, seconds in taken.items() if what.startswith(name) and seconds]
            told = f"{theirs[0] / ours:,.0f} times" if theirs else "not measured"
            found.append(Target(text, bool(theirs) and theirs[0] / ours >= least, told))
        return found

    def _scores(self) -> list[Target]:
        found = []
        for shift, rows in self.known["speed"]["scores"].items():
            ours, *peers = rows
            jax = [row for row in peers if row["what"].startswith("jaxprivacy") and AT in row["seconds"]]
            fastest = min(jax, key=lambda row: row["seconds"][AT], default=None)
            text = f"10⁵ scores, shift {shift}: not slower than the fastest valid strategy of jax-privacy"
            ratio = fastest["seconds"][AT] / ours["seconds"][AT] if fastest else math.nan
            told = f"{ratio:.2f} times as fast as {fastest['what']}" if fastest else "not measured"
            found.append(Target(text, ratio >= 1, told))
            sizes = [int(size) for size in ours["seconds"] if int(size) >= 10**4]
            first, last = min(sizes), max(sizes)
            grown = ours["seconds"][str(last)] / ours["seconds"][str(first)]
            allowed = last * math.log(last) / (first * math.log(first))
            text = f"from {first:,} to {last:,} scores, shift {shift}: no faster than n log n"
            told = f"{grown:,.0f} times the time, where n log n allows {allowed:,.0f}"
            found.append(Target(text, grown <= allowed, told))
        return found
