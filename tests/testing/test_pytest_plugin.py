"""The pytest plugin, run by pytest itself on small suites, and on one of a thousand correct mechanisms."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from canaria import Counts
from canaria.bounds.combine import confidence_at
from canaria.claims import ApproximateDP
from canaria.evidence import Evidence, Split
from canaria.evidence.inversion import EPSILON_GRID
from canaria.files.read import read_result
from canaria.files.verify import check
from canaria.testing.examine import examine
from tests.testing.correct_mechanisms import (
    BROKEN,
    CORRECT,
    EPSILONS,
    Case,
    everything_or_nothing,
    family,
)

pytest_plugins = ["pytester"]

HEAD = """
import pytest
from canaria.rules import Surest
from canaria.mechanisms import LocalLaplace, RandomizedResponse

RIGHT, BROKEN = LocalLaplace(1.0), LocalLaplace(4.0)
"""
TWO = """
def test_right(assert_private):
    assert_private(RIGHT, 1.0, 0, n=300)

def test_broken(assert_private):
    assert_private(BROKEN, 1.0, 0, n=300)
"""


def suite(
    pytester: pytest.Pytester, tests: str, *options: str, passed: int = 0, failed: int = 0, errors: int = 0
) -> pytest.RunResult:
    """Run a suite in this process and check how many tests passed, failed and ended in an error."""
    pytester.makepyfile(HEAD + tests)
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--strict-markers", "-W", "error", *options
    )
    result.assert_outcomes(passed=passed, failed=failed, errors=errors)
    return result


def lines_of(result: pytest.RunResult) -> list[str]:
    """The summary's lines about audits."""
    return sorted(line for line in result.outlines if re.match(r"(passed|FAILED)  epsilon >= ", line))


def test_a_failure_is_the_sentence_of_the_bound_with_a_way_to_repeat_it(pytester: pytest.Pytester) -> None:
    result = suite(pytester, TWO, passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            r">\s+assert_private\(BROKEN, 1\.0, 0, n=300\)",
            r"E\s+AssertionError: the claim epsilon = 1 at delta 0 is REFUTED\. With 99\.99% confidence ε is at "
            r"least 2\.\d+ at δ = 0\. Seen: \d+ of \d+ guesses right among 300 elements .*",
            r"E\s+seed \d+; repeat with: pytest .*\.py::test_broken --privacy-seed 0 --privacy-alarm-rate 0.01",
        ]
    )
    assert not any("pytest_plugin.py" in line or "testing.py" in line for line in result.outlines)
    alone = suite(pytester, TWO, "-k", "broken", failed=1)
    seed = re.compile(r"E\s+seed (\d+)")
    assert seed.findall(result.stdout.str()) == seed.findall(alone.stdout.str())
    assert lines_of(alone) == [line for line in lines_of(result) if "broken" in line]


def test_the_summary_lists_failures_first_and_states_the_rate(pytester: pytest.Pytester) -> None:
    result = suite(pytester, TWO, "--privacy-alarm-rate", "0.02", passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            "=+ privacy audits =+",
            r"FAILED  epsilon >= 2\.\d+, claimed 1 at delta 0 \(\d+ of \d+ right\)  .*test_broken",
            r"passed  epsilon >= 0\.\d+, claimed 1 at delta 0 \(\d+ of \d+ right\)  .*test_right",
            r"2 audits made, seed 0, each at a false-alarm probability of 0\.0002: a suite of correct mechanisms "
            r"with up to 100 audits fails with probability at most 2%\. "
            r"Passing is not a proof of privacy\.",
        ],
        consecutive=True,
    )


def test_a_suite_without_privacy_tests_is_left_alone(pytester: pytest.Pytester) -> None:
    result = suite(pytester, "def test_plain(): pass", passed=1)
    assert "privacy audits" not in result.stdout.str()


LEVELS = """
def level(bound):
    return 1 - bound.confidence

class TestClass:
    @pytest.mark.parametrize("k", range(3))
    def test_parameters(self, assert_private, k):
        assert level(assert_private(RIGHT, 1.0, 0, n=300)) == pytest.approx({each})

@pytest.mark.privacy(audits=2)
def test_loop(assert_private):
    for _ in range(2):
        assert level(assert_private(RIGHT, 1.0, 0, n=300)) == pytest.approx({each})

@pytest.fixture
def indirect(assert_private):
    return assert_private(RIGHT, 1.0, 0, n=300)

def test_by_another_fixture(indirect):
    assert level(indirect) == pytest.approx({each})

@pytest.mark.privacy
def test_asked_for_later(request):
    assert level(request.getfixturevalue("assert_private")(RIGHT, 1.0, 0, n=300)) == pytest.approx({each})

def test_no_audit():
    pass
"""


@pytest.mark.parametrize(
    ("options", "audits", "passed"),
    [
        ([], 7, 7),
        (["-k", "parameters"], 3, 3),
        (["-k", "loop"], 2, 1),
        (["--deselect", "test_levels.py::TestClass::test_parameters[1]"], 6, 6),
    ],
    ids=["all", "selected", "loop", "deselected"],
)
def test_every_audit_gets_the_same_part_whatever_is_selected(
    pytester: pytest.Pytester, options: list[str], audits: int, passed: int
) -> None:
    """A test must not be judged at another rate alone than in its suite."""
    pytester.makepyfile(test_levels=HEAD + LEVELS.replace("{each}", repr(0.03 / 12)))
    pytester.makeini(
        "[pytest]\nprivacy_alarm_rate = 0.03\nprivacy_audits = 12\n"
        "addopts = -p no:cacheprovider --strict-markers\n"
    )
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=passed)
    result.stdout.fnmatch_lines(
        [f"{audits} audits made, seed 0, * of 0.0025: * up to 12 audits * at most 3%.*"]
    )


def test_more_audits_than_the_rate_is_split_over_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_levels=HEAD + LEVELS)
    pytester.makeini("[pytest]\nprivacy_audits = 5\naddopts = -p no:cacheprovider --strict-markers\n")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = result.stdout.str() + result.stderr.str()
    assert "these tests declare 7 audits, but the alarm rate is split over privacy_audits = 5" in told
    pytester.makeini("[pytest]\nprivacy_audits = ١٠\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert "privacy_audits must be a whole number of at least 1" in result.stdout.str() + result.stderr.str()


@pytest.mark.full
def test_workers_show_what_one_process_shows(pytester: pytest.Pytester) -> None:
    """False alarms have the probability 9e-9 that is given to the suite."""
    tests = TWO + LEVELS.replace("{each}", "9e-11")
    given = ("--privacy-alarm-rate", "9e-9", "--privacy-seed", "7", "--privacy-results")
    spread = suite(pytester, tests, "-n", "2", *given, "spread", passed=8, failed=1)
    alone = suite(pytester, tests, *given, "alone", passed=8, failed=1)
    assert lines_of(alone) == lines_of(spread)
    assert len(lines_of(alone)) == 9
    spread.stdout.fnmatch_lines(["9 audits made, seed 7, *"])
    kept = [
        {
            path.name: read_result(path).result.bound.to_dict()
            for path in pytester.path.joinpath(folder).iterdir()
        }
        for folder in ("alone", "spread")
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) == 9


def test_results_are_kept_as_files_that_hold(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.mark.privacy(audits=2)
@pytest.mark.parametrize("text", ["a/b c", "a:b:c"])
def test_two(assert_private, text):
    assert_private(RIGHT, 1.0, 1e-6, n=300)
    assert_private(BROKEN, 1.0, 0, n=300)
"""
    suite(pytester, tests, "--privacy-results", "a/folder", failed=2)
    files = sorted(pytester.path.joinpath("a", "folder").iterdir())
    assert len(files) == 4
    for path in files:
        stored = read_result(path)
        assert check(stored).holds
        assert stored.result.claimed == 1.0
        assert stored.result.refuted is ("audit 2" in stored.result.name)
        assert stored.result.command is not None
        assert " --privacy-seed 0 --privacy-alarm-rate " in stored.result.command


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            "def test(assert_private): [assert_private(RIGHT, 1.0, 0, n=300) for _ in range(2)]",
            "this test declares 1 audit and makes another; mark it @pytest.mark.privacy(audits=N)",
        ),
        (
            "@pytest.mark.privacy(audits=2)\n"
            "def test(assert_private): [assert_private(RIGHT, 1.0, 0, n=300) for _ in range(3)]",
            "this test declares 2 audits and makes another",
        ),
        (
            'def test(request): request.getfixturevalue("assert_private")(RIGHT, 1.0, 0)',
            "this audit was not counted when the tests were collected",
        ),
        (
            "def test(request):\n"
            "    request.applymarker(pytest.mark.privacy(audits=9))\n"
            '    request.getfixturevalue("assert_private")(RIGHT, 1.0, 0)',
            "this audit was not counted when the tests were collected",
        ),
        (
            "def test(assert_private): assert_private(RIGHT, 1.0, 0, n=10)",
            "this test cannot fail: even 10 right guesses of 10 among 10 elements prove only",
        ),
        (
            "def test(assert_private): assert_private(RIGHT, 1.0, 0.02)",
            "nothing is ever refuted at a false-alarm probability of delta or less, here 0.0001",
        ),
    ],
    ids=["once more", "thrice", "not counted", "marked late", "vacuous", "delta"],
)
def test_what_would_break_the_promise_is_an_error(pytester: pytest.Pytester, test: str, message: str) -> None:
    result = suite(pytester, test, failed=1)
    assert message in result.stdout.str()


def test_both_fixtures_may_be_used_once_each(pytester: pytest.Pytester) -> None:
    tests = """
from canaria.training import Dirac
from tests.training.simulated import simulated

def test_both(assert_private, assert_private_training):
    assert assert_private.seed == assert_private_training.seed
    first = assert_private.seed
    assert assert_private(RIGHT, 1.0, 0, n=300).confidence == pytest.approx(0.9999)
    assert assert_private_training.seed != first
    recording = simulated(Dirac(300), assert_private_training.seed)
    assert assert_private_training(recording, 2.0, 1e-5).confidence == pytest.approx(0.99995)
"""
    suite(pytester, tests, passed=1).stdout.fnmatch_lines(["passed *; conformance p = *test_both audit 2"])


@pytest.mark.parametrize(
    "mark",
    ["audits=0", "audits=True", "audits='2'", "2, 3", "audit=2"],
    ids=["0", "bool", "text", "two", "other"],
)
def test_a_marker_that_says_nothing_sensible_is_refused(pytester: pytest.Pytester, mark: str) -> None:
    pytester.makepyfile(HEAD + f"@pytest.mark.privacy({mark})\ndef test(assert_private): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "with a whole number N of at least 1" in result.stdout.str() + result.stderr.str()


def test_a_test_that_makes_no_audit_ends_in_an_error(pytester: pytest.Pytester) -> None:
    result = suite(pytester, "def test(assert_private): pass", passed=1, errors=1)
    result.stdout.fnmatch_lines(["this test declares 1 audit and made none: it proves nothing by passing"])


def test_a_refused_audit_is_none(pytester: pytest.Pytester) -> None:
    """A test that swallows the error would pass without having tested anything."""
    pytester.makepyfile(
        """
        import canaria

        def test_refused(assert_private):
            try:
                assert_private(lambda included: included, -1.0, 0.0)
            except canaria.InputError:
                pass
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["this test declares 1 audit and made none*"])


def test_an_audit_may_be_made_by_a_fixture_after_the_test(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.fixture
def audited(assert_private):
    yield
    assert_private(RIGHT, 1.0, 0, n=300)

def test_late(audited):
    pass
"""
    suite(pytester, tests, passed=1).stdout.fnmatch_lines(["passed *test_late"])


def test_a_score_that_says_nothing_leaves_a_note(pytester: pytest.Pytester) -> None:
    tests = """
def test_blind(assert_private):
    assert_private(lambda included, rng: included.copy(), 1.0, 0, score=lambda output, known: 0.0 * known)
"""
    result = suite(pytester, tests, passed=1)
    result.stdout.fnmatch_lines(["*every score is the same, so nothing could be refuted*"])


def test_subtests_that_end_before_the_audit_are_not_judged(pytester: pytest.Pytester) -> None:
    tests = """
def test_right(subtests, assert_private):
    with subtests.test("shape"):
        assert True
    with subtests.test("private"):
        assert_private(RandomizedResponse(1.0), 1.0, 0)

def test_idle(subtests, assert_private):
    with subtests.test("shape"):
        assert True
"""
    result = suite(pytester, tests, passed=2, errors=1)
    result.stdout.fnmatch_lines(["this test declares 1 audit and made none*"])
    assert "SUBFAILED" not in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--privacy-alarm-rate", "0"], "--privacy-alarm-rate must be between 0 and 1, got '0'"),
        (["--privacy-alarm-rate", "1%"], "--privacy-alarm-rate must be between 0 and 1, got '1%'"),
        (["--privacy-alarm-rate", "nan"], "--privacy-alarm-rate must be between 0 and 1, got 'nan'"),
        (["--privacy-alarm-rate", "0.0_1"], "--privacy-alarm-rate must be between 0 and 1, got '0.0_1'"),
        (["--privacy-seed", "-3"], "--privacy-seed must be a whole number, got '-3'"),
    ],
    ids=["zero", "percent", "nan", "underscore", "negative"],
)
def test_options_that_make_no_sense_are_refused(
    pytester: pytest.Pytester, options: list[str], message: str
) -> None:
    pytester.makepyfile("def test(): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_seeds_follow_from_the_option(pytester: pytest.Pytester) -> None:
    first, again, other = (
        lines_of(suite(pytester, TWO, "--privacy-seed", seed, passed=1, failed=1)) for seed in ("5", "5", "6")
    )
    assert first == again != other


def test_a_failure_that_is_run_again_fails_again(pytester: pytest.Pytester) -> None:
    """As plugins do that repeat failed tests: neither luck nor the count of audits helps."""
    pytester.makeconftest(
        """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if attempt == 2 or not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
    )
    result = suite(pytester, TWO, passed=1, failed=1)
    assert len(lines_of(result)) == 2
    assert "declares" not in result.stdout.str()


def test_the_plugin_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + TWO)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:canaria")
    result.assert_outcomes(errors=2)
    assert "fixture 'assert_private' not found" in result.stdout.str()


def test_doctests_are_collected_as_ever(pytester: pytest.Pytester) -> None:
    tests = """
def documented():
    \'\'\'
    >>> 1 + 1
    2
    \'\'\'
"""
    suite(pytester, tests, "--doctest-modules", passed=1)


def test_nothing_is_imported_before_a_test_asks_for_it(tmp_path: Path) -> None:
    """In a process of its own, as pytest runs on any machine where canaria is installed."""
    test = tmp_path / "test_light.py"
    test.write_text(
        "import sys\n"
        "def test_light():\n"
        "    assert 'canaria.testing.pytest_plugin' in sys.modules\n"
        "    assert not {'numpy', 'scipy', 'canaria.testing.assertions'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout


EXAMPLE = Path(__file__).parents[2] / "examples" / "ci"


def example(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    """Run the example as the workflow does."""
    commands = re.findall(r"run: (pytest .*)", (EXAMPLE / "privacy.yml").read_text())
    assert len(commands) == 2
    pytester.path.joinpath("test_privacy.py").write_text(source)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *shlex.split(commands[0])[1:])


def test_the_example_runs_as_the_workflow_runs_it(pytester: pytest.Pytester) -> None:
    result = example(pytester, (EXAMPLE / "test_privacy.py").read_text())
    result.assert_outcomes(passed=6)
    files = list(pytester.path.joinpath("privacy-results").glob("*.json"))
    assert len(files) == 6
    assert all(check(read_result(path)).holds for path in files)


def test_the_example_fails_where_clipping_is_forgotten(pytester: pytest.Pytester) -> None:
    source = (EXAMPLE / "test_privacy.py").read_text()
    forgotten = source.replace("np.clip(values, 0, 1)", "np.asarray(values)")
    assert forgotten != source
    result = example(pytester, forgotten)
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["FAILED  epsilon >= *test_mean"])


THOUSAND = """
import pytest
from tests.testing.correct_mechanisms import BROKEN, CORRECT

@pytest.mark.parametrize("case", CORRECT, ids=str)
def test_correct(assert_private, case):
    case.hold(assert_private)

@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_broken(assert_private, case):
    case.hold(assert_private)
"""


def failed_of_a_thousand(pytester: pytest.Pytester, *options: str) -> list[str]:
    pytester.makepyfile(test_thousand=THOUSAND)
    pytester.makeini("[pytest]\nprivacy_audits = 1010\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tb=no", "-rf", *options)
    failed = re.findall(r"^FAILED test_thousand\.py::(\S+)", result.stdout.str(), re.M)
    result.assert_outcomes(passed=len(CORRECT) + len(BROKEN) - len(failed), failed=len(failed))
    result.stdout.fnmatch_lines(["1010 audits made, seed *, * fails with probability at most 1%.*"])
    return failed


@pytest.mark.full
def test_a_suite_of_a_thousand_correct_mechanisms_fails_at_the_broken_ones_only(
    pytester: pytest.Pytester,
) -> None:
    """At seed 0; of all seeds at most 1 in 100 may show a false failure, which is the stated rate."""
    assert len(CORRECT) == 1000
    assert failed_of_a_thousand(pytester) == [f"test_broken[{case}]" for case in BROKEN]


@pytest.mark.full
def test_no_false_failure_in_suites_of_a_thousand_at_other_seeds(pytester: pytest.Pytester) -> None:
    """Ten suites at 1%: three or more with a false failure have a probability below 2e-4."""
    wrong = [
        any("correct" in name for name in failed_of_a_thousand(pytester, "--privacy-seed", str(seed)))
        for seed in range(1, 11)
    ]
    assert sum(wrong) <= 2


def least_that_fails(taken: int, elements: int, claim: tuple[float, float], confidence: float) -> int:
    """The fewest right guesses that make a test fail, by bisection."""
    low, high = 0, taken + 1
    while high - low > 1:
        middle = (low + high) // 2
        failed = not examine(Counts(middle, taken, elements), ApproximateDP(*claim), {}, confidence).passed
        low, high = (low, middle) if failed else (middle, high)
    return high


def test_suites_of_counting_tests_fail_as_often_as_they_may() -> None:
    """4,000 suites of 1,000 exactly true claims at an alarm rate of 20%; a binomial test at 1e-4.

    The share of failing suites is also known exactly here, and is not far below the rate: nothing is given away.
    """
    rate, tests, suites = 0.2, 1000, 4000
    confidence = confidence_at(rate / tests)
    epsilons = EPSILONS[::5]
    least = np.array([least_that_fails(150, 200, (epsilon, 0.0), confidence) for epsilon in epsilons])
    chances = 1 / (1 + np.exp(-np.array(epsilons)))
    alarms = stats.binom.sf(least - 1, 150, chances)
    assert (alarms <= rate / tests).all()
    exact = 1 - np.prod((1 - alarms) ** (tests / len(epsilons)))
    assert rate / 3 < exact <= rate
    rng = np.random.default_rng(0)
    right = rng.binomial(150, chances[:, None, None], (len(epsilons), suites, tests // len(epsilons)))
    failing = int((right >= least[:, None, None]).any(axis=(0, 2)).sum())
    assert failing <= stats.binom.isf(1e-4, suites, rate)
    assert abs(failing / suites - exact) <= 4 * (exact / suites) ** 0.5


def may_fail(evidence: Evidence, claim: tuple[float, float], level: float) -> bool:
    """A cheap condition without which a test does not fail: the first claim above it is refuted too."""
    if isinstance(evidence, Split):
        return any(
            may_fail(part, claim, level * share)
            for part, share in zip(evidence.parts, evidence.shares, strict=True)
        )
    epsilon, delta = claim
    if evidence.inversion != "bisection":
        epsilon = float(EPSILON_GRID[np.searchsorted(EPSILON_GRID, epsilon, side="right")])
    smallest = getattr(evidence, "_smallest_tail", None)
    if smallest is not None:
        return bool(smallest(epsilon) <= level)
    return evidence.p_value(ApproximateDP(epsilon, delta)) <= level


@pytest.mark.full
def test_suites_of_a_thousand_mixed_mechanisms_fail_no_more_often_than_stated() -> None:
    """200 suites of 1,000 audits of eleven kinds at an alarm rate of 20%; a binomial test at 1e-4."""
    rate, tests, suites = 0.2, 1000, 200
    confidence, delta = confidence_at(rate / tests), 1e-4
    cases = [
        case for epsilon in EPSILONS[::2] for case in (*family(epsilon, delta), everything_or_nothing(delta))
    ]
    cases = (cases * 2)[:tests]
    assert len(cases) == tests
    failed = np.zeros((tests, suites), dtype=bool)
    for row, case in enumerate(cases):
        failed[row] = failures(case, suites, row, confidence)
    failing = int(failed.any(axis=0).sum())
    kinds = {case.name: int(failed[[other.name == case.name for other in cases]].sum()) for case in cases}
    assert 0 < failing <= stats.binom.isf(1e-4, suites, rate), f"{failing} of {suites}: {kinds}"


def failures(case: Case, trials: int, seed: int, confidence: float) -> list[bool]:
    """Which of so many independent games would fail as tests."""
    claim = (case.epsilon, case.delta)
    return [
        may_fail(game.evidence, claim, 1 - confidence)
        and not examine(game, ApproximateDP(*claim, game.adjacency), {}, confidence).passed
        for game in case.transcripts(trials, seed)
    ]


def test_the_cheap_condition_misses_no_failure() -> None:
    """Held against the whole test, on mechanisms that fail often."""
    seen = 0
    for case in BROKEN[::5]:
        for game in case.transcripts(5, 0):
            for epsilon in (case.epsilon, 2.0, 2.4):
                passed = examine(game, ApproximateDP(epsilon, 0, game.adjacency), {}, 0.999).passed
                assert passed or may_fail(game.evidence, (epsilon, 0.0), 0.001)
                seen += not passed
    assert seen > 5
