"""The wheel in an empty environment: what works without any extra, and how much it installs.

    python benchmarks/wheel.py dist/canaria-0.1.0-py3-none-any.whl

It fails if a verb does not work, if a page is not refused in one line that says how to get it, if that line
does not help, or, on the machines that the README speaks of, if its figures are off by more than a tenth.
"""

import argparse
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
STATED = re.compile(r"(\d+) packages, (\d+) MB")
TOLERANCE = 0.1
WITHOUT_EXTRAS = (
    "bound --correct 73 --guesses 100 --elements 1000 --delta 1e-5 -o bound.json",
    "scores scores.csv --delta 0.01 -o scores.json",
    "plan --epsilon 2 --delta 1e-5 --steps 10 --sample-rate 0.1",
    "verify bound.json scores.json",
    "report bound.json scores.json",
    "report bound.json -o report.md",
)
PAGE = "report bound.json -o report.html"
WITH_THE_EXTRA = (PAGE, "demo --out demo", "verify demo/correct.json demo/broken.json")


class Size(NamedTuple):
    packages: int
    megabytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        python = empty_environment(here / "environment")
        install(python, [str(wheel)])
        installed = measured(here / "environment")
        write_scores(here / "scores.csv")
        for words in WITHOUT_EXTRAS:
            run(python, words, here)
        refusal = run(python, PAGE, here, expected=2)
        print(refusal)
        install(python, shlex.split(refusal.partition("pip install ")[2]))
        for words in WITH_THE_EXTRA:
            run(python, words, here)
    print(f"without extras: {installed.packages} packages, {installed.megabytes:.0f} MB in site-packages")
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        require_fresh((ROOT / "README.md").read_text(), installed)


def empty_environment(place: Path) -> Path:
    """An environment without pip, which would count; its Python."""
    venv.create(place)
    return place / "bin" / "python"


def install(python: Path, what: list[str]) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *quiet, *what], check=True)


def measured(environment: Path) -> Size:
    (packages,) = environment.glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    return Size(len(list(packages.glob("*.dist-info"))), size / 1e6)


def write_scores(path: Path) -> None:
    """Scores of 200 elements, which separate those that were included a little."""
    bits = [k**3 % 11 % 2 for k in range(200)]
    rows = [f"{k * 37 % 97 + 20 * bit},{bit}\n" for k, bit in enumerate(bits)]
    path.write_text("score,included\n" + "".join(rows))


def run(python: Path, words: str, folder: Path, expected: int = 0) -> str:
    """Run a verb as its users do; what it complained of."""
    command = [str(python.with_name("canaria")), *words.split()]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode != expected or (expected and ended.stderr.count("\n") != 1):
        sys.exit(f"canaria {words}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stderr.strip()


def require_fresh(readme: str, installed: Size) -> None:
    """Fail if the README states figures that are not those of today."""
    found = STATED.search(readme)
    stated = Size(int(found[1]), int(found[2])) if found else Size(0, 0)
    if any(abs(said - is_so) > TOLERANCE * is_so for said, is_so in zip(stated, installed, strict=True)):
        now = f"{installed.packages} packages, {installed.megabytes:.0f} MB"
        sys.exit(f"README.md states {stated.packages} packages, {stated.megabytes} MB; measured: {now}")


if __name__ == "__main__":
    main()
