"""Run the museum of real faults, each in an environment of its own; write docs/wild.md. By `make wild`.

Names as arguments run only those exhibits, and write nothing.
"""

import json
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "wild.md"
ENVIRONMENTS = ROOT / ".wild"
START = "<!-- By `make wild`: -->\n"
NVFLARE = (
    "numpy msgpack psutil pyyaml cryptography requests six filelock pydantic docker grpcio protobuf aiohttp "
    "safetensors pyhocon Flask"
)
"""What NVFlare imports. All that it asks for would be gigabytes."""
DPMM = (
    "numpy==1.26.4 pandas==2.1.0 scikit-learn==1.5.0 networkx<3 disjoint-set==0.7.4 opendp==0.12.1 tqdm<5 "
    "scipy<1.15"
)
OPACUS = "torch==2.13.0 opt-einsum"

LOAD = """
import json, runpy, sys, warnings
warnings.simplefilter("ignore")
found = runpy.run_path(sys.argv[1])["result"]
release = hasattr(found, "answer")
accused = found.answer == "refuted" if release else not found.holds
print(json.dumps([accused, str(found), int(found.facts["runs"].split()[0]) if release else 0]))
"""
"""Runs an exhibit in its own environment."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A public fault, and the release without it.

    Attributes:
        example: The name of the file in examples/wild.
        fault: A package with the fault, as pip takes it, which is installed without what it depends on.
        needs: What else to install, separated by spaces.
        fixed: The package without the fault, or the same one with an argument, which the example is given.
        remedy: How the fault was fixed, in words.
        public: Where it was reported, as repository and number.
    """

    example: str
    fault: str
    needs: str = ""
    fixed: str = ""
    remedy: str
    public: Sequence[str]

    @property
    def title(self) -> str:
        """The heading of its part of the page."""
        return f"{self.fault.replace('==', ' ')}: {self.example.split('_', 1)[1].replace('_', ' ')}"

    @property
    def forms(self) -> list[str]:
        """The packages to try: with the fault and, if there is one, without it."""
        return [self.fault, self.fixed] if self.fixed else [self.fault]


EXHIBITS = (
    Exhibit(
        example="diffprivlib_regression",
        fault="diffprivlib==0.6.6",
        needs="scikit-learn<1.8 pandas",
        remedy="No release fixes it yet.",
        public=("IBM/differential-privacy-library 104", "IBM/differential-privacy-library 105"),
    ),
    Exhibit(
        example="smartnoise_covariance",
        fault="smartnoise-synth==1.0.5",
        needs="pandas",
        fixed="smartnoise-synth==1.0.6",
        remedy="Fixed in 1.0.6.",
        public=("opendp/smartnoise-sdk 622",),
    ),
    Exhibit(
        example="dpmm_domain",
        fault="dpmm==0.1.9",
        needs=DPMM,
        fixed="dpmm==0.1.9 fixed",
        remedy="Fixed by stating the domain; later versions ask for it.",
        public=("sassoftware/dpmm 18", "sassoftware/dpmm 24"),
    ),
    Exhibit(
        example="nvflare_svt",
        fault="nvflare==2.9.0",
        needs=NVFLARE,
        remedy="No release fixes it yet.",
        public=("londonaicentre/FLIP 1145", "KatherLab/MediSwarm 530"),
    ),
    Exhibit(
        example="nvflare_percentile",
        fault="nvflare==2.9.0",
        needs=NVFLARE,
        remedy="No release fixes it yet. The filter states no ε; any other is refuted, too.",
        public=("londonaicentre/FLIP 1145", "KatherLab/MediSwarm 530"),
    ),
    Exhibit(
        example="opacus_ghost_bias",
        fault="opacus==1.5.3",
        needs=OPACUS,
        fixed="opacus==1.5.4",
        remedy="Fixed in 1.5.4.",
        public=("meta-pytorch/opacus 751",),
    ),
    Exhibit(
        example="opacus_padding",
        fault="opacus==1.5.4",
        needs=OPACUS,
        fixed="opacus==1.6.0",
        remedy="Fixed in 1.6.0.",
        public=("meta-pytorch/opacus 792",),
    ),
    Exhibit(
        example="opacus_normaliser",
        fault="opacus==1.6.0",
        needs=OPACUS,
        fixed="opacus==1.6.0 fixed",
        remedy="Fixed by setting both numbers by hand.",
        public=("meta-pytorch/opacus 571", "meta-pytorch/opacus 819"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run of an exhibit showed."""

    accused: bool
    said: str
    runs: int
    seconds: float


def environment(exhibit: Exhibit, package: str) -> Path:
    """The Python of an environment with a package, what it needs, and canaria as it is here."""
    folder = ENVIRONMENTS / package.replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {package} ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Together, so that pip does not replace what the package needs by what canaria would take.
        subprocess.run([*pip, "--editable", str(ROOT), *exhibit.needs.split()], check=True)
        subprocess.run([*pip, "--no-deps", package], check=True)
        (folder / "ready").touch()
    return python


def seen(exhibit: Exhibit, form: str) -> Seen:
    """Run an exhibit with a package, and with an argument if one follows it."""
    package, *argument = form.split()
    python = environment(exhibit, package)
    script = ROOT / "examples" / "wild" / f"{exhibit.example}.py"
    started = time.perf_counter()
    shown = subprocess.run(
        [python, "-c", LOAD, script, *argument],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ENVIRONMENTS,
    )
    accused, said, runs = json.loads(shown.stdout.splitlines()[-1])
    return Seen(accused=accused, said=said, runs=runs, seconds=time.perf_counter() - started)


def section(exhibit: Exhibit, runs: Sequence[Seen]) -> str:
    """The part of the page about one exhibit."""
    code = (ROOT / "examples" / "wild" / f"{exhibit.example}.py").read_text()
    title, code = code.removeprefix('"""').split('"""\n', 1)
    links = ", ".join(
        f"[{place}](https://github.com/{place.split()[0]}/issues/{place.split()[1]})"
        for place in exhibit.public
    )
    needs = " ".join(f'"{need}"' if "<" in need else need for need in exhibit.needs.split())
    lines = [
        f"## {exhibit.title}\n",
        f"{' '.join(title.split())} Reported in {links}. {exhibit.remedy}\n",
        f"```sh\npip install canaria {needs} && pip install --no-deps {exhibit.fault}\n```\n",
        f"```py\n{code.strip()}\n```\n",
    ]
    for form, run in zip(exhibit.forms, runs, strict=True):
        package, *argument = form.split()
        shown = f"{package.replace('==', ' ')}{', with `fixed`' if argument else ''}"
        after = f" after {run.runs} runs" if run.runs else ""
        lines.append(f"With {shown}{after}, in {run.seconds:.0f} s:\n\n```console\n{brief(run.said)}\n```\n")
    return "\n".join(lines)


def brief(said: str) -> str:
    """What a result prints, up to its verdict."""
    lines = said.splitlines()
    last = next((place for place, line in enumerate(lines) if "refuted" in line), len(lines))
    return "\n".join(lines[: last + 1])


def summary(found: Sequence[tuple[Exhibit, Sequence[Seen]]]) -> str:
    """All exhibits in a table."""
    lines = ["| Package | Found by | Runs | Seconds | Without the fault |", "|---|---|---|---|---|"]
    for exhibit, (fault, *fixed) in found:
        link = exhibit.title.replace(" ", "-").replace(".", "").replace(":", "")
        by = "check_release" if fault.runs else "check_sensitivity"
        without = "not accused" if fixed else "no such release"
        lines.append(
            f"| [{exhibit.title}](#{link}) | `{by}` | {fault.runs or '–'} | {fault.seconds:.0f} | {without} |"
        )
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> int:
    """Run the exhibits; the exit code is 1 if a fault is missed or a repaired release accused."""
    found, wrong = [], []
    for exhibit in EXHIBITS:
        if names and exhibit.example not in names:
            continue
        runs = []
        for form in exhibit.forms:
            run = seen(exhibit, form)
            right = run.accused == (form == exhibit.fault)
            verdict = f"{'accused' if run.accused else 'not accused'} in {run.seconds:.0f} s, {run.runs} runs"
            print(f"{exhibit.example}, {form}: {verdict}{'' if right else ': WRONG'}", flush=True)
            wrong += [] if right else [form]
            runs.append(run)
        found.append((exhibit, runs))
    if not names and not wrong:
        head = PAGE.read_text().split(START)[0]
        parts = [section(exhibit, runs) for exhibit, runs in found]
        PAGE.write_text(head + START + "\n" + "\n".join([summary(found), *parts]).rstrip() + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
