"""Who is compared: canaria and the peers that can be installed, each asked in an environment of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.environments import Peer, make, peers

BENCHMARKS = Path(__file__).resolve().parent.parent
OURS = "canaria"
Task = dict[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Auditor:
    """One method of one peer; `gaussian` ones claim something about Gaussian mechanisms only."""

    peer: str
    name: str
    gaussian: bool = False

    def __str__(self) -> str:
        return f"{self.peer}: {self.name}"


RANKED = Auditor(OURS, "ranked")
HINDSIGHT = Auditor(OURS, "best_k")


@dataclass(frozen=True)
class Field:
    """The peers that are ready, and why the others are not."""

    ready: dict[str, Peer]
    missing: dict[str, str]

    def auditors(self) -> Iterator[Auditor]:
        """Every method of every peer."""
        for name, peer in self.ready.items():
            for auditor, about in peer.auditors.items():
                yield Auditor(name, auditor, "Gaussian" in about)

    def python(self, peer: str) -> str:
        """Of the environment that a peer lives in."""
        return sys.executable if peer == OURS else str(self.ready[peer].python)

    def asked(self, auditor: Auditor, tasks: Iterable[Task]) -> list[Answer]:
        """What an auditor says to tasks, in order; see `peers.worker`."""
        given = [{"auditor": auditor.name, **task} for task in tasks]
        done = subprocess.run(
            [self.python(auditor.peer), "-m", "peers.worker", auditor.peer],
            cwd=BENCHMARKS,
            input="".join(json.dumps(task) + "\n" for task in given),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        nothing = {"bounds": [], "seconds": [], "error": why}
        return answers + [nothing] * (len(given) - len(answers))

    def all_asked(
        self, what: str, auditors: Iterable[Auditor], tasks: list[Task]
    ) -> dict[Auditor, list[Answer]]:
        """What everybody says to the same tasks, on all cores."""
        chosen = list(auditors)

        def ask(auditor: Auditor) -> list[Answer]:
            found = self.asked(auditor, tasks)
            print(f"{what}: {auditor}", flush=True)
            return found

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(chosen, pool.map(ask, chosen), strict=True))

    def versions(self) -> list[str]:
        """What is installed, as each environment says."""
        code = "import importlib.metadata as m, sys; print(sys.argv[1], m.version(sys.argv[1]))"
        named = {name: peer.package.split("==")[0] for name, peer in self.ready.items()}
        commands = [[self.python(name), "-c", code, package] for name, package in named.items()]
        return [subprocess.check_output(words, text=True).strip() for words in commands]


def assembled() -> Field:
    """Make the environments that are missing."""
    ready, missing = {}, {}
    for name, peer in peers().items():
        print(f"{name}: {peer.package}", flush=True)
        if error := make(peer):
            missing[name] = error
        else:
            ready[name] = peer
    return Field(ready, missing)
