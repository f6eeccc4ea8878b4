"""Running experiments: resuming, killing, engines, a real Dask cluster."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canaria.lab.engines import engine
from canaria.lab.figures.reproduce import blocks, reproduce, select
from canaria.lab.store import Store
from tests.cli.command import canaria, installed

pytestmark = pytest.mark.slow  # charts need the extra `lab`, and a cluster needs `dask`
COMMAND = str(Path(sys.executable).with_name("canaria"))
NAME = "adaptive-count-in-sets"


def data(folder: Path) -> dict[str, bytes]:
    """What a run writes, but for the blocks' own folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run = installed("reproduce", NAME, "--trials", "40", "--workers", "1", "--out", str(folder))
    assert run.code == 0, run.err
    return data(folder)


@pytest.mark.full
def test_two_processes_give_the_same(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    run = installed(
        "reproduce", NAME, "--trials", "40", "--workers", "2", "--out", str(tmp_path / "run"), "--json"
    )
    assert data(tmp_path / "run") == undisturbed
    written = json.loads(run.out)
    assert {Path(path).suffix for path in written} == {".json", ".jsonl", ".png", ".svg"}


HEEDING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that."""


@pytest.mark.parametrize(
    "blow",
    [
        pytest.param(signal.SIGKILL, marks=pytest.mark.full, id="kill -9"),
        pytest.param(signal.SIGINT, marks=pytest.mark.full, id="Ctrl-C"),
    ],
)
def test_killed_and_resumed_is_the_same(
    tmp_path: Path, undisturbed: dict[str, bytes], blow: signal.Signals
) -> None:
    """Struck as soon as some blocks are done, then resumed.

    A terminal interrupts the workers too. Reading standard error to its end waits for them.
    """
    folder = tmp_path / "run"
    words = [COMMAND, "reproduce", NAME, "--trials", "40", "--workers", "2", "--out", str(folder)]
    heeding = [sys.executable, "-c", HEEDING, *words]
    with subprocess.Popen(heeding, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        deadline = time.monotonic() + 60
        while len(list(folder.glob("blocks/*/*.json"))) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if blow == signal.SIGINT:
            os.killpg(running.pid, blow)
        else:
            os.kill(running.pid, blow)
        _, told = running.communicate(timeout=60)
    if blow == signal.SIGINT:
        assert running.returncode == 130
        assert told.endswith(f"canaria: interrupted; finished blocks are in {folder}, go on with --resume\n")
        assert "Traceback" not in told
    finished = len(list(folder.glob("blocks/*/*.json")))
    assert 3 <= finished < 20
    again = installed(*words[1:])
    assert again.code == 2
    assert "add --resume" in again.err
    assert installed(*words[1:], "--resume").code == 0
    assert data(folder) == undisturbed


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A real scheduler and two real workers on loopback."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = 20_000 + os.getpid() % 20_000
    address = f"tcp://127.0.0.1:{port}"
    dask = str(Path(sys.executable).with_name("dask"))
    scheduler_words = [dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker_words = [dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    running = [subprocess.Popen(scheduler_words, **quiet)]  # type: ignore[call-overload]
    running += [subprocess.Popen(worker_words, **quiet) for _ in range(2)]  # type: ignore[call-overload]
    try:
        yield address, running
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.full
def test_dask_cluster_that_loses_a_worker_gives_the_same(
    tmp_path: Path,
    undisturbed: dict[str, bytes],
    cluster: tuple[str, list[subprocess.Popen[bytes]]],
) -> None:
    address, processes = cluster
    folder = tmp_path / "run"
    words = [COMMAND, "reproduce", NAME, "--trials", "40", "--dask", address, "--out", str(folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 120
        while len(list(folder.glob("blocks/*/*.json"))) < 5:
            assert time.monotonic() < deadline
            assert running.poll() is None, running.stderr.read() if running.stderr else ""
            time.sleep(0.02)
        processes[1].kill()
        assert running.wait(timeout=240) == 0
    assert data(folder) == undisturbed


@pytest.mark.full
def test_dask_cluster_that_is_lost_is_one_line(
    tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    """Its scheduler dies; above the line is Dask's own log."""
    address, processes = cluster
    folder = tmp_path / "run"
    words = [COMMAND, "reproduce", NAME, "--trials", "800", "--dask", address, "--out", str(folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 120
        while len(list(folder.glob("blocks/*/*.json"))) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        processes[0].kill()
        _, told = running.communicate(timeout=240)
    assert running.returncode == 2
    assert told.splitlines()[-1] == (
        f"canaria: Dask cluster '{address}' was lost; finished blocks are in {folder}, go on with --resume"
    )


def test_blocks_do_not_depend_on_how_many_there_are() -> None:
    """More repetitions extend a run; they do not change what is there."""
    few, many = (list(blocks(select([NAME], True, trials, 0))) for trials in (20, 40))
    assert set(few) <= set(many)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "experiment must be one of guesses, elements"),
        (["laplace", "--trials", "1"], "trials must be an integer of at least 2, got 1"),
        (["laplace", "--workers", "0"], "workers must be an integer of at least 1, got 0"),
        (["laplace", "--dask", "none://here"], "Dask cluster 'none://here' cannot be reached"),
        pytest.param(
            ["laplace", "--dask", "tcp://127.0.0.1:1"],
            "Dask cluster 'tcp://127.0.0.1:1' cannot be reached",
            marks=pytest.mark.full,
        ),
    ],
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path) -> None:
    ran = canaria("reproduce", *words, "--quick", "--out", str(tmp_path / "run"))
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "run").exists()


def test_listing() -> None:
    assert "adaptive-dpsgd" in canaria("reproduce", "--list").out
    assert len(json.loads(canaria("reproduce", "--list", "--json").out)) == 11


def test_progress_is_told_after_every_block(tmp_path: Path) -> None:
    selected = select([NAME], True, 20, 0)
    told: list[tuple[int, int]] = []
    with engine(1) as executor:
        reproduce(selected, Store.open(tmp_path / "run", {}, False), executor, lambda *now: told.append(now))
    assert told == [(done, 3) for done in range(4)]
