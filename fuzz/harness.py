"""What the targets share: a watch on time, a count, and inputs that fail kept.

    python -m fuzz.evidence --inputs 250000
    python -m fuzz.evidence --replay fuzz/found/evidence-0123456789ab

An input fails if it raises anything but what it may, or takes more than a second of processor time. The watch
on what it reaches slows canaria several times, so one that looks slow is replayed in a process without it.
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import atheris

from canaria._core.errors import InputError
from canaria.bounds.bound import Bound
from canaria.claims import ApproximateDP

FOUND: Final = Path(__file__).parent / "found"
LONGEST_SECONDS: Final = 1.0
_HANGING_SECONDS: Final = 30.0
_TRIES: Final = 2
MOST_BYTES: Final = 4096
_MOST_FAULTS: Final = 10
Target = Callable[[bytes], None]


@dataclass
class Watch:
    """Counts inputs, times them, and keeps those that fail."""

    name: str
    target: Target
    inputs: int = 0
    slowest: float = 0.0
    slowest_input: bytes = b""
    faults: dict[str, str] = field(default_factory=dict)

    def __call__(self, data: bytes) -> None:
        """Run one input."""
        self.inputs += 1
        try:
            took = _seconds(self.target, data)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self._keep(
                data, f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}", str(error)
            )
            return
        if took > LONGEST_SECONDS:
            took = self._replayed(data)
        if took > self.slowest:
            self.slowest, self.slowest_input = took, data
        if took > LONGEST_SECONDS:
            self._keep(data, f"{took:.1f} s", "slower than allowed")

    def _replayed(self, data: bytes) -> float:
        path = _keep(self.name, data)
        words = [sys.executable, "-m", f"fuzz.{self.name}", "--replay", str(path)]
        told = subprocess.run(words, cwd=FOUND.parents[1], check=True, capture_output=True, text=True).stdout
        took = float(told.split()[0])
        if took <= LONGEST_SECONDS:
            path.unlink()
        return took

    def _keep(self, data: bytes, fault: str, message: str) -> None:
        if fault in self.faults:
            return
        path = _keep(self.name, data)
        self.faults[fault] = (
            f"{fault}: {' '.join(message.split())[:300]}\n  python -m fuzz.{self.name} --replay {path}"
        )
        print(f"{self.name}: {self.faults[fault]}", flush=True)
        if len(self.faults) >= _MOST_FAULTS:
            raise SystemExit(1)

    def tell(self) -> None:
        """Say how it went."""
        slow = f"slowest {self.slowest:.3f} s"
        if self.slowest > LONGEST_SECONDS / 2:
            slow += f" ({_keep(self.name, self.slowest_input)})"
        print(f"{self.name}: {self.inputs} inputs, {slow}, {len(self.faults)} faults", flush=True)


def _keep(name: str, data: bytes) -> Path:
    path = FOUND / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


@contextlib.contextmanager
def not_counted() -> Iterator[None]:
    """What is done to make an input is not what the input takes."""
    started = time.process_time()
    try:
        yield
    finally:
        _not_counted.append(time.process_time() - started)


_not_counted: Final[list[float]] = []


def _seconds(target: Target, data: bytes) -> float:
    """How much processor time an input takes; one that does not end is stopped."""
    _not_counted.clear()
    signal.setitimer(signal.ITIMER_VIRTUAL, _HANGING_SECONDS)
    started = time.process_time()
    try:
        target(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.process_time() - started - sum(_not_counted)


def _stop(*_: object) -> None:
    raise TimeoutError(f"more than {_HANGING_SECONDS} s")


def run(name: str, target: Target, seeds: Iterable[bytes], prepare: Callable[[], None] | None = None) -> None:
    """Fuzz a target from the command line; `prepare` puts the files that it needs into the current folder."""
    parser = argparse.ArgumentParser(prog=f"python -m fuzz.{name}")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="run one kept input, and show what it raises")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("error", RuntimeWarning)
    signal.signal(signal.SIGVTALRM, _stop)
    FOUND.mkdir(exist_ok=True)
    kept = options.replay and options.replay.read_bytes()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if prepare is not None:
            prepare()
        if kept is not None:
            print(f"{min(_seconds(target, kept) for _ in range(_TRIES)):.3f} s")
            return
        watch = Watch(name, target)
        try:
            _fuzz(watch, options.inputs, options.seed, seeds)
        finally:
            watch.tell()
            if watch.faults:
                os._exit(1)


def _fuzz(watch: Watch, inputs: int, seed: int, seeds: Iterable[bytes]) -> None:
    corpus = Path("corpus")
    corpus.mkdir()
    for number, data in enumerate(seeds):
        watch(data)
        (corpus / str(number)).write_bytes(data)
    arguments = {
        "atheris_runs": inputs,
        "seed": seed,
        "max_len": MOST_BYTES,
        "timeout": 10**6,
        "report_slow_units": 10**6,
        "rss_limit_mb": 8192,
        "artifact_prefix": f"{FOUND}/",
        "verbosity": 0,
    }
    atheris.Setup([sys.argv[0], *(f"-{key}={value}" for key, value in arguments.items()), str(corpus)], watch)
    atheris.Fuzz()


def check(bound: Bound) -> None:
    """A bound is a number of at least 0, refuted by its own evidence, and all of it can be written down."""
    evidence, level = bound.evidence, 1 - bound.confidence
    p_value = evidence.p_value(ApproximateDP(bound.epsilon, bound.delta))
    sound = 0 <= bound.epsilon <= 750 and 0 <= p_value <= 1 and bound.estimate >= 0
    if not sound or (bound.epsilon > 0 and p_value > level) or "nan" in str(bound):
        raise AssertionError(
            f"{bound.epsilon=} {bound.estimate=} {p_value=} {level=} {bound.delta=} {evidence}"
        )
    json.dumps(bound.to_dict(), allow_nan=False)


def check_refusal(error: InputError) -> None:
    """What is refused is refused in one line."""
    if "\n" in str(error):
        raise AssertionError(f"more than one line: {error}")
