"""Shared by all tests: tiers, processes, numerics, and cases of property tests.

In CI a skipped test is a failure, and property tests try the same cases each time. Tests run side by side, so numerics
inside one of them take one thread. JAX compiles most of what it runs for a moment only, so it does so without taking
pains, and keeps what it compiled for the next run.
"""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import pytest
from hypothesis import settings

from tests import durations, tiers

collect_ignore = ["programs"]
"""Scripts, which import what lies beside them."""
settings.register_profile("developer", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "developer")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-durations", action="store_true", help="measure all tests, and write tests/durations.tsv"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-durations"):
        config.pluginmanager.register(durations.Meter())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    late = tiers.waiting(durations.read())
    for item in items:
        if item.nodeid in late:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups instead of `--dist loadgroup`, which would append the group to the name of every test."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return tiers.group(nodeid)

    return Groups(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("CI") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("skipped tests fail in CI: install what they need", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
