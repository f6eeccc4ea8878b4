"""One environment for each peer, with canaria in it: .venv-peers/NAME.

`python benchmarks/peers/environments.py` makes what is missing and says what cannot be installed or imported;
names choose some, `--list` shows all auditors. It reads the adapters without importing them.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = ROOT / ".venv-peers"
STAMP = "installed.json"


@dataclass(frozen=True)
class Peer:
    """An adapter, as its file says: `package` with its dependencies and `also`, `alone` without them."""

    name: str
    package: str
    check: str
    also: tuple[str, ...]
    alone: tuple[str, ...]
    auditors: dict[str, str]

    @property
    def home(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def installs(self) -> list[list[str]]:
        """The arguments of pip; the constraints keep torch to its CPU build."""
        together = [*self.also, *([] if self.alone else [self.package])]
        steps = [["--constraint", str(ROOT / "constraints.txt"), "--editable", str(ROOT), *together]]
        return steps + ([["--no-deps", *self.alone]] if self.alone else [])


def read(path: Path) -> Peer | None:
    """A peer from its file, not imported: that needs the peer. None for a file that is no adapter."""
    tree = ast.parse(path.read_text())
    found = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    if "PACKAGE" not in found:
        return None
    said = {
        name: ast.literal_eval(found[name]) for name in ("PACKAGE", "CHECK", "ALSO", "ALONE") if name in found
    }
    named = {node.id for node in ast.walk(found["AUDITORS"]) if isinstance(node, ast.Name)}
    auditors = {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in named
    }
    return Peer(
        path.stem, said["PACKAGE"], said["CHECK"], said.get("ALSO", ()), said.get("ALONE", ()), auditors
    )


def peers() -> dict[str, Peer]:
    """All adapters in this folder."""
    found = (read(path) for path in sorted(HERE.glob("*.py")))
    return {peer.name: peer for peer in found if peer is not None}


def finished(peer: Peer) -> bool:
    """Whether the environment was made as the adapter now asks, and to the end."""
    stamp = peer.home / STAMP
    return stamp.is_file() and json.loads(stamp.read_text()) == _wanted(peer)


def make(peer: Peer) -> str | None:
    """Make the environment afresh if it is not finished; what went wrong, or None."""
    if not finished(peer):
        shutil.rmtree(peer.home, ignore_errors=True)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / ".gitignore").write_text("*\n")
        commands = [[sys.executable, "-m", "venv", str(peer.home)]]
        pip = [str(peer.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in commands + [[*pip, *step] for step in peer.installs()]:
            if error := _error(command):
                return f"cannot be installed: {error}"
    if error := _error([str(peer.python), "-c", f"import canaria, {peer.check}, peers.{peer.name}"]):
        return f"cannot be imported: {error}"
    (peer.home / STAMP).write_text(json.dumps(_wanted(peer)))
    return None


def _wanted(peer: Peer) -> dict[str, object]:
    """What decides an environment, in the words of JSON."""
    asked = {name: value for name, value in asdict(peer).items() if name != "auditors"}
    return dict(json.loads(json.dumps({**asked, "python": sys.version})))


def _error(command: list[str]) -> str | None:
    """Run a command; the last thing it complained of if it failed."""
    surroundings = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=surroundings)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [f"exit code {done.returncode}"])[-1].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these peers")
    parser.add_argument("--list", action="store_true", help="list peers and auditors, and make nothing")
    options = parser.parse_args()
    known = peers()
    if unknown := set(options.names) - set(known):
        parser.error(f"no peer is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    failed = False
    for peer in [known[name] for name in options.names or known]:
        if options.list:
            print(f"{peer.name} ({peer.package}): {'ready' if finished(peer) else 'not installed'}")
            print("".join(f"  peers.{peer.name}:{name:<28} {text}\n" for name, text in peer.auditors.items()))
            continue
        print(f"{peer.name:<18} {peer.package:<32} ", end="", flush=True)
        error = make(peer)
        print(error or "ready", flush=True)
        failed |= error is not None
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
