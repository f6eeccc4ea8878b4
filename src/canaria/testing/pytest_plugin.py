"""A pytest plugin: privacy claims as tests, with one false-alarm rate for the whole suite.

Every audit gets the same part of the alarm rate: `--privacy-alarm-rate` divided by `privacy_audits`, the
number of audits that the whole suite may make (100 unless the ini file says otherwise). By the union bound a
suite of correct mechanisms fails with at most that probability, over the hidden bits and the noise, however
the audits depend on each other. Audits are counted when the tests are collected, before any of them runs;
more than `privacy_audits`, or a test that makes more than it declares, is an error.

Seeds follow from `--privacy-seed`, the test's node id (its path from pytest's root folder, and its name) and
the number of the audit in it. With the same root folder a test therefore has the same outcome each time: in
its suite, alone, selected by -k or repeated after a failure.

pytest imports this module in every run on a machine where canaria is installed, so it imports nothing else
until a test needs it.
"""

import hashlib
import re
import secrets
import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from canaria.bounds.bound import Bound
    from canaria.claims import Claim
    from canaria.game.play import Score
    from canaria.rules import AdaptiveRule, Rule
    from canaria.testing.assertions import Verdict

_SUITE: Final = "canaria-suite"
_FIXTURES: Final = frozenset({"assert_private", "assert_private_training"})
_MARKER: Final = "privacy(audits=1): how many privacy audits the test makes, counted before any test runs"
_RATE: Final = 0.01
_AUDITS: Final = 100
_LISTED: Final = 20
_SEEDS: Final = 2**32

Line = dict[str, Any]
_LINES: Final = pytest.StashKey[list[Line]]()
_COUNTED: Final = pytest.StashKey[int]()
_MADE: Final = pytest.StashKey["Audits"]()
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
        help="whole number from which the seeds of all audits follow, or 'random' (default: 0)",
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
        self.drawn = config.getoption("privacy_seed") == "random"
        folder = config.getoption("privacy_results")
        self.folder = None if folder is None else Path(folder)
        self.audits, self.declared = _most_audits(config), 0
        self.seen: dict[str, Line] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send the seed, which may have been drawn at random, to a worker of pytest-xdist."""
        node.workerinput["canaria_seed"] = self.seed

    def pytest_report_header(self) -> list[str]:
        """Print the seed if it was drawn at random."""
        return [f"privacy seed: {self.seed}, drawn; repeat with --privacy-seed {self.seed}"] * self.drawn

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the audits of the selected tests; all workers of pytest-xdist collect the same.

        Tests that use none of our fixtures may carry another plugin's marker of the same name. Too many of
        these are not an error unless one of the tests makes an audit after all.
        """
        for item in session.items:
            item.stash[_COUNTED] = declared(item)
        self.declared = sum(item.stash[_COUNTED] for item in session.items)
        if sum(item.stash[_COUNTED] for item in session.items if _fixtures(item)) > self.audits:
            raise pytest.UsageError(self.too_many())

    def too_many(self) -> str:
        """The error if more audits are declared than the alarm rate is split over."""
        return (
            f"these tests declare {_audits(self.declared)}, but privacy_audits = {self.audits}: the alarm "
            f"rate is split over no more; set privacy_audits = {self.declared}, or more, in the pytest ini "
            "file"
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
        audits, ended = item.stash.get(_MADE, None), item.stash.get(_ENDED, False)
        idle = audits is not None and audits.settled == 0 < audits.allowed
        if report.when == "teardown" and report.passed and ended and audits is not None and idle:
            report.outcome = "failed"
            report.longrepr = (
                f"this test declares {_audits(audits.allowed)} and made none: it proves nothing by passing"
            )
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
        shown = lines if terminalreporter.verbosity > 0 else lines[:_LISTED]
        terminalreporter.section("privacy audits")
        for line in shown:
            verdict = "passed" if line["passed"] else "FAILED"
            terminalreporter.write_line(f"{verdict}  {line['text']}  {line['name']}", red=not line["passed"])
            for note in line["notes"]:
                terminalreporter.write_line(f"        {note}")
        if len(shown) < len(lines):
            terminalreporter.write_line(f"... and {len(lines) - len(shown)} more; -v lists all")
        terminalreporter.write_line(
            f"{_audits(len(lines))} made, seed {self.seed}, each held at a false-alarm probability of "
            f"{self.rate / self.audits:.3g}: a suite of correct mechanisms with up to {self.audits} audits "
            f"fails with probability at most {100 * self.rate:.6g}%. Passing is not a proof of privacy."
        )


def declared(item: pytest.Item) -> int:
    """How many audits a test may make: as marked, or one for each of our fixtures that it uses.

    A test that uses none of our fixtures may carry another plugin's marker of that name, which is not
    checked.
    """
    used = _fixtures(item)
    mark = item.get_closest_marker("privacy")
    if mark is None:
        return used
    given = [*mark.args, *mark.kwargs.values()] or [max(used, 1)]
    audits = given[0]
    if len(given) == 1 and set(mark.kwargs) <= {"audits"} and type(audits) is int and audits >= 1:
        return audits
    if used == 0:
        return 0
    raise pytest.UsageError(
        f"{item.nodeid}: the marker is @pytest.mark.privacy(audits=N) with a whole number N of at least 1"
    )


def _fixtures(item: pytest.Item) -> int:
    """How many of our fixtures a test names."""
    return len(_FIXTURES.intersection(getattr(item, "fixturenames", ())))


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
        """The seed of the next audit."""
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
        if self.suite.declared > self.suite.audits:
            raise InputError(self.suite.too_many())
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
class GameAssertion:
    """The value of the fixture `assert_private`."""

    audits: Audits

    @property
    def seed(self) -> int:
        """The seed of the next audit, for other random numbers of a test."""
        return self.audits.seed

    def __call__(
        self,
        mechanism: Any,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        claim: "Claim | None" = None,
        score: "Score | None" = None,
        rule: "Rule | AdaptiveRule | None" = None,
        n: int | None = None,
        rounds: Sequence[Any] | None = None,
        pairs: Sequence[tuple[Any, Any]] | None = None,
        adjacency: str | None = None,
    ) -> "Bound":
        """Fail if one game refutes the claim; see `canaria.assert_private`."""
        __tracebackhide__ = True
        from canaria.testing.assertions import examine, promise

        promised = promise(epsilon, delta, claim, adjacency)
        game = {"score": score, "rule": rule, "n": n, "rounds": rounds, "pairs": pairs}
        confidence, seed = self.audits.begin()
        verdict = examine(mechanism, promised, game, confidence, rng=seed)
        return self.audits.settle(verdict)


@dataclass(frozen=True)
class TrainingAssertion:
    """The value of the fixture `assert_private_training`."""

    audits: Audits

    @property
    def seed(self) -> int:
        """The seed of the next audit: `attach(..., rng=assert_private_training.seed)`."""
        return self.audits.seed

    def __call__(
        self,
        audit: Any,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        claim: "Claim | None" = None,
        rule: "Rule | AdaptiveRule | None" = None,
        adaptive: bool = False,
        conformance: bool = True,
        adjacency: str | None = None,
    ) -> "Bound":
        """Fail if training refutes the claim or is not as stated; see `canaria.assert_private_training`."""
        __tracebackhide__ = True
        from canaria.testing.assertions import examine_training, promise

        promised = promise(epsilon, delta, claim, adjacency)
        how = {"rule": rule, "adaptive": adaptive}
        confidence, _ = self.audits.begin()
        verdict = examine_training(audit, promised, how, confidence, conformance=conformance)
        return self.audits.settle(verdict)


@pytest.fixture
def _privacy_audits(request: pytest.FixtureRequest) -> Audits:
    """What the privacy fixtures of one test share; made again when a test is run again."""
    suite = request.config.pluginmanager.get_plugin(_SUITE)
    assert isinstance(suite, Suite)
    request.node.stash[_LINES], request.node.stash[_ENDED] = [], False
    audits = Audits(suite=suite, item=request.node, allowed=request.node.stash.get(_COUNTED, 0))
    request.node.stash[_MADE] = audits
    return audits


@pytest.fixture
def assert_private(_privacy_audits: Audits) -> GameAssertion:
    """Fail if one game refutes a privacy claim: `assert_private(mechanism, epsilon, delta, score=...)`."""
    return GameAssertion(_privacy_audits)


@pytest.fixture
def assert_private_training(_privacy_audits: Audits) -> TrainingAssertion:
    """Fail if an audited training run refutes its claim or is not as stated: `(audit, epsilon, delta)`."""
    return TrainingAssertion(_privacy_audits)


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
    given = getattr(config, "workerinput", {}).get("canaria_seed", config.getoption("privacy_seed"))
    if given == "random":
        return secrets.randbelow(_SEEDS)
    if not (str(given).isascii() and str(given).isdigit()):
        raise pytest.UsageError(f"--privacy-seed must be a whole number or 'random', got {given!r}")
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
