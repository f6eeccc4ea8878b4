"""A pytest plugin: privacy claims as tests, with one false-alarm rate for the whole suite.

Every audit gets the same part of the alarm rate: `--privacy-alarm-rate` divided by `privacy_audits`, the
number of audits that the whole suite may make (100 unless the ini file says otherwise). By the union bound a
suite of correct mechanisms fails with at most that probability, over the hidden bits and the noise, however
the audits depend on each other. Audits are counted when the tests are collected, before any of them runs.
It is an error if there are more than `privacy_audits`, or if a test makes more than it declares.

Seeds follow from `--privacy-seed`, the test's node id (its path from pytest's root folder, and its name) and
the number of the audit in it. With the same root folder a test therefore has the same outcome each time: in
its suite, alone, selected by -k or repeated after a failure.

pytest imports this module in every run on a machine where canaria is installed, so it imports nothing else
until a test needs it.
"""

import hashlib
import re
import shlex
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from canaria.bounds.bound import Bound
    from canaria.claims import Claim
    from canaria.testing.verdict import Verdict

_SUITE: Final = "canaria-suite"
_FIXTURES: Final = frozenset({"assert_private", "assert_private_training"})
_MARKER: Final = "privacy(audits=1): how many privacy audits the test makes, counted before any test runs"
_RATE: Final = 0.01
_AUDITS: Final = 100

Line = dict[str, Any]
_LINES: Final = pytest.StashKey[list[Line]]()
_COUNTED: Final = pytest.StashKey[int]()
_ENDED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, in their own group."""
    group = parser.getgroup("canaria", "privacy tests (canaria)")
    group.addoption(
        "--privacy-alarm-rate",
        metavar="RATE",
        help="probability that a suite of correct mechanisms may fail, split over its privacy audits "
        f"(default: ini privacy_alarm_rate, or {_RATE})",
    )
    group.addoption(
        "--privacy-seed",
        metavar="SEED",
        default="0",
        help="whole number from which the seeds of all audits follow (default: 0)",
    )
    group.addoption(
        "--privacy-results",
        metavar="FOLDER",
        help="write every audit as a result file that `canaria verify` and `canaria report` read",
    )
    parser.addini("privacy_alarm_rate", "default of --privacy-alarm-rate", default=str(_RATE))
    parser.addini(
        "privacy_audits",
        "how many privacy audits the whole suite may make; each gets an equal part of the alarm rate, "
        f"whichever tests are selected (default: {_AUDITS})",
        default=str(_AUDITS),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the suite of this session."""
    config.addinivalue_line("markers", _MARKER)
    config.pluginmanager.register(Suite(config), _SUITE)


class Suite:
    """One session: its alarm rate, the number of audits it is split over, and their outcomes."""

    def __init__(self, config: pytest.Config) -> None:
        self.rate, self.seed = _rate(config), _seed(config)
        folder = config.getoption("privacy_results")
        self.folder = None if folder is None else Path(folder)
        self.audits = _most_audits(config)
        self.seen: dict[str, Line] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the audits of the selected tests; all workers of pytest-xdist collect the same."""
        for item in session.items:
            item.stash[_COUNTED] = declared(item)
        total = sum(item.stash[_COUNTED] for item in session.items)
        if total > self.audits:
            raise pytest.UsageError(
                f"these tests declare {_audits(total)}, but the alarm rate is split over privacy_audits = "
                f"{self.audits}; set privacy_audits = {total}, or more, in the pytest ini file"
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Note that a test has run to its end; before that, only its subtests are reported."""
        yield
        item.stash[_ENDED] = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put the outcomes of audits into the report, from workers too."""
        report = yield
        if item.stash.get(_LINES, []):
            vars(report)["canaria"], item.stash[_LINES] = item.stash[_LINES], []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcomes of audits; a test that is run again replaces its lines."""
        for line in getattr(report, "canaria", ()):
            self.seen[line["name"]] = line

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the audits, failures first, then those with notes, and state the rate."""
        if not self.seen:
            return
        lines = sorted(self.seen.values(), key=lambda line: (bool(line["passed"]), not line["notes"]))
        terminalreporter.section("privacy audits")
        for line in lines:
            verdict = "passed" if line["passed"] else "FAILED"
            terminalreporter.write_line(f"{verdict}  {line['text']}  {line['name']}", red=not line["passed"])
            for note in line["notes"]:
                terminalreporter.write_line(f"        {note}")
        terminalreporter.write_line(
            f"{_audits(len(lines))} made, seed {self.seed}, each at a false-alarm probability of "
            f"{self.rate / self.audits:.3g}: a suite of correct mechanisms with up to {self.audits} audits "
            f"fails with probability at most {100 * self.rate:.6g}%. Passing is not a proof of privacy."
        )


def declared(item: pytest.Item) -> int:
    """The number of audits of a test: as marked, or one for each fixture of this plugin that it uses."""
    used = len(_FIXTURES.intersection(getattr(item, "fixturenames", ())))
    mark = item.get_closest_marker("privacy")
    if mark is None:
        return used
    given = [*mark.args, *mark.kwargs.values()] or [max(used, 1)]
    if len(given) == 1 and set(mark.kwargs) <= {"audits"} and type(given[0]) is int and given[0] >= 1:
        return given[0]
    raise pytest.UsageError(
        f"{item.nodeid}: the marker is @pytest.mark.privacy(audits=N) with a whole number N of at least 1"
    )


@dataclass(repr=False, kw_only=True)
class Audits:
    """The audits of one test: how many it may make, has begun, and has brought to a verdict."""

    suite: Suite
    item: pytest.Item
    allowed: int
    made: int = 0
    settled: int = 0

    @property
    def seed(self) -> int:
        text = f"{self.suite.seed}\n{self.item.nodeid}\n{self.made}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def __repr__(self) -> str:
        return f"{self.made} of {self.allowed}"

    def begin(self) -> tuple[float, int]:
        """The confidence of every audit of the suite, and a seed; an error if there are too many."""
        __tracebackhide__ = True
        from canaria._core.errors import InputError
        from canaria.bounds.combine import confidence_at

        if self.allowed == 0:
            raise InputError(
                "this audit was not counted when the tests were collected: name the fixture among the "
                "arguments of the test, or mark it @pytest.mark.privacy(audits=1)"
            )
        if self.made == self.allowed:
            raise InputError(
                f"this test declares {_audits(self.allowed)} and makes another; mark "
                "it @pytest.mark.privacy(audits=N) with as many as it makes: the alarm rate is split "
                "beforehand"
            )
        seed = self.seed
        self.made += 1
        return confidence_at(self.suite.rate / self.suite.audits), seed

    def settle(self, verdict: "Verdict") -> "Bound":
        """Note the outcome of an audit, and fail if it is against the claim."""
        __tracebackhide__ = True
        self.settled += 1
        node = self.item.nodeid
        name = node if self.allowed == 1 else f"{node} audit {self.made}"
        command = (
            f"pytest {shlex.quote(node)} --privacy-seed {self.suite.seed} "
            f"--privacy-alarm-rate {self.suite.rate:.6g}"
        )
        text, notes = _in_short(verdict), list(verdict.notes)
        line = {"name": name, "passed": verdict.passed, "text": text, "notes": notes}
        self.item.stash[_LINES].append(line)
        if self.suite.folder is not None:
            self.suite.folder.mkdir(parents=True, exist_ok=True)
            verdict.result(name, command).save(self.suite.folder / _file_name(name))
        if not verdict.passed:
            seed = "" if verdict.seed is None else f"seed {verdict.seed}; "
            raise AssertionError(f"{verdict}\n{seed}repeat with: {command}")
        return verdict.bound


@dataclass(frozen=True)
class Assertion:
    """The value of a fixture; it is called like the function of that name, without `confidence` and `rng`."""

    audits: Audits
    examined: "Callable[..., Verdict]"

    @property
    def seed(self) -> int:
        """The seed of the next audit, for other random numbers of a test: `attach(..., rng=fixture.seed)`."""
        return self.audits.seed

    def __call__(
        self,
        audited: Any,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        claim: "Claim | None" = None,
        adjacency: str | None = None,
        **how: Any,
    ) -> "Bound":
        """Fail if the audit refutes the claim."""
        __tracebackhide__ = True
        from canaria.testing.assertions import promise

        promised = promise(epsilon, delta, claim, adjacency)
        return self.audits.settle(self.examined(audited, promised, *self.audits.begin(), **how))


def _of_game(audited: Any, claim: "Claim", confidence: float, seed: int, **how: Any) -> "Verdict":
    __tracebackhide__ = True
    from canaria.testing.examine import examine

    return examine(audited, claim, how, confidence, rng=seed)


def _of_training(audited: Any, claim: "Claim", confidence: float, seed: int, **how: Any) -> "Verdict":
    __tracebackhide__ = True
    from canaria.testing.examine import examine_training

    conformance = how.pop("conformance", True)
    return examine_training(audited, claim, how, confidence, conformance=conformance)


@pytest.fixture
def _privacy_audits(request: pytest.FixtureRequest) -> Generator[Audits, None, None]:
    """The audits of one test, which its fixtures share; made again when a test is run again."""
    suite = request.config.pluginmanager.get_plugin(_SUITE)
    assert isinstance(suite, Suite)
    stash = request.node.stash
    stash[_LINES], stash[_ENDED] = [], False
    audits = Audits(suite=suite, item=request.node, allowed=stash.get(_COUNTED, 0))
    yield audits
    # Fixtures that use this one have ended, too, and may have made an audit after the test.
    if stash[_ENDED] and audits.settled == 0 < audits.allowed:
        pytest.fail(
            f"this test declares {_audits(audits.allowed)} and made none: it proves nothing by passing",
            pytrace=False,
        )


@pytest.fixture
def assert_private(_privacy_audits: Audits) -> Assertion:
    """Fail if one game refutes a privacy claim: `assert_private(mechanism, epsilon, delta, score=...)`."""
    return Assertion(_privacy_audits, _of_game)


@pytest.fixture
def assert_private_training(_privacy_audits: Audits) -> Assertion:
    """Fail if an audited training run refutes its claim or is not as stated: `(audit, epsilon, delta)`."""
    return Assertion(_privacy_audits, _of_training)


def _rate(config: pytest.Config) -> float:
    given = str(config.getoption("privacy_alarm_rate") or config.getini("privacy_alarm_rate"))
    try:
        rate = float(given) if given.isascii() and "_" not in given else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1:
        raise pytest.UsageError(f"--privacy-alarm-rate must be between 0 and 1, got {given!r}")
    return rate


def _most_audits(config: pytest.Config) -> int:
    given = str(config.getini("privacy_audits"))
    if not (given.isascii() and given.isdigit() and int(given) >= 1):
        raise pytest.UsageError(f"privacy_audits must be a whole number of at least 1, got {given!r}")
    return int(given)


def _seed(config: pytest.Config) -> int:
    given = str(config.getoption("privacy_seed"))
    if not (given.isascii() and given.isdigit()):
        raise pytest.UsageError(f"--privacy-seed must be a whole number, got {given!r}")
    return int(given)


def _in_short(verdict: "Verdict") -> str:
    bound, found = verdict.bound, verdict.conformance
    right, taken = bound.tally
    training = "" if found is None else f"; conformance {found.in_words}"
    seen = f"({right} of {taken} right{training})"
    if bound.family is not None:
        return f"refuted: {bound.claim or 'nothing'}, claimed {verdict.promise} {seen}"
    promised = verdict.promise.removeprefix("epsilon = ")
    return f"epsilon >= {bound.epsilon_text}, claimed {promised} {seen}"


def _audits(count: int) -> str:
    return f"{count} audit{'' if count == 1 else 's'}"


def _file_name(name: str) -> str:
    """A name for a file, readable and different for different audits."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name)[-80:].strip('-.')}-{digest}.json"
