"""How long tests take, in seconds of processor time, and the file that keeps it.

Processor time, children included, because wall time depends on what else the machine does. If tests share a fixture,
each of them is charged with it: whichever runs first has to make it.
"""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).parent / "durations.tsv"
LISTED: Final = 0.1
"""Seconds from which a test has a line in the file."""
MEASURED: Final = "processor seconds"


def read() -> dict[str, float]:
    """The seconds of every listed test."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {name: float(seconds) for seconds, _, name in (line.partition("\t") for line in lines)}


def write(found: dict[str, float]) -> None:
    """Write a line for every test that takes long enough, slowest first; tests that were not run keep theirs."""
    known = {**read(), **found}
    listed = sorted(((took, name) for name, took in known.items() if took >= LISTED), reverse=True)
    FILE.write_text("".join(f"{took:.2f}\t{name}\n" for took, name in listed))


def used() -> float:
    """Seconds of processor time that this process and its finished children have used."""
    who = (resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in who)


class Meter:
    """A plugin that measures every test, wherever it runs, and writes the file at the end."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._began = 0.0
        self._shared: dict[tuple[str, str], float] = {}
        """The cost of each fixture that tests share, by where it is defined and its name."""
        self._made_here = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        began = used()
        made = yield
        if fixturedef.scope != "function":
            took = used() - began
            self._shared[fixturedef.baseid, fixturedef.argname] = took
            self._made_here += took
        return made

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._began, self._made_here = used(), 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            alone = used() - self._began - self._made_here
            names = getattr(item, "fixturenames", ())
            shared = [
                took
                for (base, name), took in self._shared.items()
                if name in names and item.nodeid.startswith(base)
            ]
            item.user_properties.append((MEASURED, alone + sum(shared)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, took in report.user_properties:
            if name == MEASURED:
                self.found[report.nodeid] = took

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write(self.found)
        terminalreporter.write_line(f"durations of {len(self.found)} tests written to {FILE}")
