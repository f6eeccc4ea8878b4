"""Work that is killed, or out of room: its results are those of an undisturbed run."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

from canaria.lab.engines import WorkerLostError, engine, run_tasks
from tests.lab.folders import contents

COMMAND = str(Path(sys.executable).with_name("canaria"))
TRAINING = str(Path(__file__).parents[2] / "examples" / "resumed_training.py")
SMALL = ("reproduce", "laplace", "--quick")
LARGE = ("reproduce", "adaptive-count-in-sets", "--trials", "160")
CASES = ("rr-0.1", "rr-1", "laplace-2", "half", "stop-ahead-2")
AUDITORS = ("ranked", "soft", "bets", "mixture", "tails:50")
VALIDATE = (
    "validate",
    *AUDITORS,
    *(f"--case={name}" for name in CASES),
    "--audits",
    "100",
    "--claims",
    "400",
)


class Work(NamedTuple):
    """What is started in a folder, and started again in the same way after every blow."""

    name: str
    words: tuple[str, ...]

    def start(self, folder: Path, **options: Any) -> subprocess.Popen[str]:
        words = [*self.words, str(folder)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def command(words: tuple[str, ...], workers: int) -> Work:
    every = (COMMAND, *words, "--workers", str(workers), "--resume", "--out")
    return Work(f"{words[0]}, {workers} workers", every)


def training(injection: str, steps: int) -> Work:
    options = ("--injection", injection, "--steps", str(steps), "--folder")
    return Work(f"training, {injection}", (sys.executable, "-W", "ignore", TRAINING, *options))


class Undisturbed(NamedTuple):
    """All that a run leaves, blocks and pictures too, and how long it took."""

    contents: dict[str, bytes]
    seconds: float


def finish(work: Work, folder: Path) -> str:
    with work.start(folder) as process:
        told, _ = process.communicate()
    assert process.returncode == 0, told
    return told


@cache
def undisturbed(work: Work) -> Undisturbed:
    with TemporaryDirectory() as folder:
        begun = time.monotonic()
        finish(work, Path(folder) / "run")
        return Undisturbed(contents(Path(folder) / "run"), time.monotonic() - begun)


def wait_for(pattern: str, folder: Path, process: subprocess.Popen[str]) -> None:
    while not list(folder.glob(pattern)):
        assert process.poll() is None
        time.sleep(0.01)


def kill_at_random(work: Work, kills: int, place: Path) -> int:
    """Kill work at moments that are uniform over its whole time, so many times; how many runs ended in between.

    A run that ends is compared, and the next begins in a new folder. Reading its output to the end waits for
    every process that the killed one started.
    """
    rng = np.random.default_rng(17)
    struck = ended = 0
    while True:
        folder, last = place / str(ended), struck == kills
        moment = None if last else rng.uniform(0, undisturbed(work).seconds)
        with work.start(folder) as process:
            try:
                told, _ = process.communicate(timeout=moment)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate(timeout=60)
                struck += process.returncode == -signal.SIGKILL
                continue
        assert process.returncode == 0, told
        assert contents(folder) == undisturbed(work).contents
        ended += 1
        if last:
            return ended


@pytest.mark.full
def test_killed_at_random_moments(tmp_path: Path) -> None:
    kill_at_random(command(SMALL, 1), 2, tmp_path)


@pytest.mark.full
def test_training_is_killed_and_goes_on(tmp_path: Path) -> None:
    """Model, optimizer, accountant, audit and result are the same in the end."""
    work, folder = training("sum", 100), tmp_path / "run"
    with work.start(folder) as process:
        wait_for("checkpoint.pt", folder, process)
        process.kill()
    assert not (folder / "result.json").exists()
    finish(work, folder)
    assert contents(folder) == undisturbed(work).contents


@pytest.mark.full
@pytest.mark.parametrize(
    "work",
    [command(LARGE, 1), command(LARGE, 2), command(VALIDATE, 2), training("sum", 600), training("rows", 600)],
    ids=lambda work: work.name,
)
def test_killed_a_hundred_times(work: Work, tmp_path: Path) -> None:
    kill_at_random(work, 100, tmp_path)


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


def no_file_above(size: int, work: Work) -> Work:
    """Files cannot grow beyond a size, as on a disk that gets full (but the error is "File too large")."""
    return Work(work.name, (sys.executable, "-c", LIMITED, str(size), *work.words))


@pytest.mark.full
def test_a_worker_dies_and_the_disk_is_full(tmp_path: Path) -> None:
    """Each is one line, what is finished stays, and the end is that of an undisturbed run."""
    work, folder = command(SMALL, 1), tmp_path / "run"
    expected = undisturbed(work).contents
    with command(SMALL, 2).start(folder) as process:
        wait_for("blocks/*/*.json", folder, process)
        children = psutil.Process(process.pid).children()
        next(child for child in children if "spawn_main" in " ".join(child.cmdline())).kill()
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told.splitlines()[-1] == (
        "canaria: a worker died (killed, or out of memory?); "
        f"finished blocks are in {folder}, go on with --resume"
    )
    finished = contents(folder)
    assert len(finished) > 1
    assert finished.items() <= expected.items()

    with no_file_above(2000, work).start(folder) as process:
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert re.fullmatch(
        rf"canaria: {folder}/laplace\.\S+ cannot be written: File too large", told.splitlines()[-1]
    )
    assert finished.items() <= contents(folder).items() <= expected.items()

    finish(work, folder)
    assert contents(folder) == expected


FULL = """
mount -t tmpfs -o size=1m none "$1" && cd "$1" || exit 99
shift; filler=$1; shift; copy=$1; shift
"$@" bound --correct 73 --guesses 100 --elements 1000 --json > result.json || exit 98
dd if=/dev/zero of=filler bs=1k 2>/dev/null; truncate -s -$filler filler
"$@" reproduce laplace --quick --workers 1 --resume --out run; echo "code $?"
"$@" report result.json -o report.html; echo "code $?"
find . -name ".*.*"
rm filler
"$@" verify result.json || exit 97
"$@" reproduce laplace --quick --workers 1 --resume --out run || exit 96
cp -r run "$copy"
"""


@pytest.mark.full
@pytest.mark.parametrize("room", [0, 4, 8, 12, 20, 28, 36, 48, 64, 96])
def test_a_disk_that_is_full(room: int, tmp_path: Path) -> None:
    """A real one of 1 MiB, with some KiB left: where it ends, what is there stays, and room lets it go on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["unshare", "-rm", "sh", "-c", FULL, "sh", str(disk), f"{room}k", str(tmp_path / "copy"), COMMAND]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode == 99 or "unshare" in ran.stderr:
        pytest.skip("needs a user namespace to mount a small disk")
    assert ran.returncode == 0, ran
    assert contents(tmp_path / "copy") == undisturbed(command(SMALL, 1)).contents
    codes = re.findall("^code .*", ran.stdout, re.MULTILINE)
    complaints = re.findall(
        "^canaria: .* cannot be (?:written|used): No space left.*", ran.stderr, re.MULTILINE
    )
    assert codes.count("code 2") == len(complaints) == 2
    assert "/." not in ran.stdout
    assert "Traceback" not in ran.stderr


def test_output_without_room_is_one_line() -> None:
    words = [COMMAND, "bound", "--correct", "73", "--guesses", "100", "--elements", "100"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=buffered, check=False)
    assert (ran.returncode, ran.stderr) == (2, "canaria: output cannot be written: No space left on device\n")


def test_workers_end_with_the_work_that_fails() -> None:
    """A task that takes an hour does not keep the process that lost patience.

    The pool joins its workers too, and of two that join a process one may be told that it is alive; so the
    system is asked.
    """
    with pytest.raises(ValueError, match="must be non-negative"), engine(2) as executor:
        list(run_tasks(time.sleep, [(3600,), (-1,)], executor))
    for worker in active_children():
        with suppress(psutil.NoSuchProcess):
            psutil.Process(worker.pid).wait(60)


def test_a_worker_that_dies_is_told() -> None:
    with (
        pytest.raises(WorkerLostError, match=r"a worker died \(killed, or out of memory\?\)"),
        engine(2) as executor,
    ):
        list(run_tasks(os._exit, [(1,)], executor))
