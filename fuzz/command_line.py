"""The command line, in this process: exit codes 0, 1 and 2, and one line where something is wrong."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from canaria.bounds.bound import lower_bound
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP
from canaria.cli import main
from canaria.evidence import Counts, Ranking
from canaria.report.page import page
from canaria.report.section import explain
from fuzz import draw, harness

_ODD: Final = (
    "nan|inf|-inf|1e400|-1|-0.0|5e-324|1e-17|0x10|1_0|\uff13|| 2|+3|1,5|99999999999999999999|--|-|x|2|0.5|"
    "0|1e3"
)
_REFUSED_PLANS: Final = (
    "--epsilon 0|--too-small 0|--per-coordinate 0|--rule online|--delta 2|--steps 0|--sample-rate 0"
)


class Verb(NamedTuple):
    """Words to try, separated by bars: arguments, options mostly given, others; `None` is a switch."""

    arguments: str = ""
    wanted: dict[str, str | None] = {}  # noqa: RUF012 (never changed)
    others: dict[str, str | None] = {}  # noqa: RUF012


_SMALL: Final = "1|2|3|10|25|40"
_COUNT: Final = "0|1|73|100|1000|999999999|1000000000|1000000000000000"
_RULES: Final = (
    "ranked|soft|online|tails:4|top:3|surest:5|threshold:1|threshold:inf|all|bet|budget:5|budget:5:0.5|"
    "tails:0|tails:|tails:1e3|top:999|threshold:nan|rank|:|budget:1:2:3"
)
_FUNCTIONS: Final = (
    "math:sqrt|json:dumps|nosuch:thing|math:pi|:|math:|.:x|math:no|numpy:array|numpy:cumsum|a b:c"
)
_MECHANISMS: Final = (
    "randomized-response --epsilon 2|randomized-response --epsilon 50|local-laplace --epsilon 0.5|xor|count|"
    "local-gaussian --sigma 1|name-and-shame|all-or-nothing --p 0.5|xor-randomized-response --epsilon 1|"
    "count-in-sets --size 5|noisy-count-in-sets --size 4 --sigma 1|local-gaussian --sigma 1e-9|nothing||"
    "xor-in-pairs"
)
_FILES: Final = "scores.csv|scores.jsonl|odd.csv|result.json|ranking.json|odd.json|nowhere|.||-|-|a\0b"
_JSON: Final[dict[str, str | None]] = {"--json": None}
_CLAIM: Final = {
    "--delta": "0|1e-5|0.001|0.5|1|1e-300",
    "--confidence": "0.95|0.5|0.99|0.1|0.9999999|0.05|0.999999999999",
    "--claimed": "0|0.5|1|2|50|inf",
    "--out": "made.json|.|no/such/made.json|-|",
    **_JSON,
}
_OWN: Final = {
    "--epsilon": "0|700|1e-9",
    "--sigma": "1e-9|1e9",
    "--p": "0|1",
    "--size": _SMALL,
    "--seed": "0|1",
}
_VERBS: Final = {
    "bound": Verb(
        "",
        {"--correct": _COUNT, "--guesses": _COUNT, "--elements": _COUNT},
        {"--method": "exact|steinke", "--adjacency": "add-remove|replace|both", **_CLAIM},
    ),
    "scores": Verb(
        _FILES, {}, {"--rule": _RULES, "--seed": "0|1|7", "--adjacency": "add-remove|replace|", **_CLAIM}
    ),
    "verify": Verb(_FILES, {}, _JSON),
    "report": Verb(_FILES, {}, {"--out": "page.html|.|no/such/page.html|", "--title": "<b>|", **_JSON}),
    "schema": Verb("", {}, _JSON),
    "run": Verb(
        f"{_MECHANISMS}|{_FUNCTIONS}",
        {"--n": _SMALL},
        {
            "--trials": "1|2|0",
            "--rule": _RULES,
            "--score": _FUNCTIONS,
            "--adaptive": None,
            **_OWN,
            **_CLAIM,
        },
    ),
    "gaps": Verb(
        _MECHANISMS, {"--n": _SMALL, "--trials": "1|9|0"}, {"--k": _SMALL, "--list": None, **_JSON, **_OWN}
    ),
    "plan": Verb(
        "",
        {
            "--epsilon": "2|0.5|8|1e-9|0",
            "--delta": "1e-5|0|1|0.5|1e-300",
            "--steps": "1|10|100|0",
            "--sample-rate": "0.1|1|0.01|0|1e-9",
            "--canaries": _SMALL,
        },
        {
            "--per-coordinate": _SMALL,
            "--coordinates": _SMALL,
            "--noise-multiplier": "1|2|100|1e-9|0",
            "--rule": "ranked|soft|online",
            "--too-small": "2|1|1000|0",
            "--confidence": "0.95|0.5|0.99|0.1",
            **_JSON,
        },
    ),
    "reproduce": Verb("nothing|", {}, {"--list": None, "--trials": "1", **_JSON}),
    "validate": Verb("nothing|:", {}, {"--list": None, "--audits": "1", **_JSON}),
    "demo": Verb("nothing", {}, {"--help": None}),
    "nothing": Verb("", {}, {"--help": None, "--version": None}),
}
"""Sizes stay small where time grows with them; plans, which take seconds, are all refused."""


def one(data: bytes) -> None:
    """Run a command, mostly one that makes sense."""
    source = draw.Source(data)
    words, typed = _command(source), _typed(source)
    out, err = io.StringIO(), io.StringIO()
    kept = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["canaria", *words], io.TextIOWrapper(io.BytesIO(typed))
    code: Any = None
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.argv, sys.stdin = kept
    said = err.getvalue()
    if code not in (0, 1, 2) or "Traceback" in said or " encountered in " in said:
        raise AssertionError(f"{code=} {words} {typed[:80]!r} {said[-600:]}")
    complaints = [
        line for line in said.splitlines() if not line.startswith(("canaria: note", "canaria: warning"))
    ]
    if code == 2 and len(words) > 1 and (out.getvalue() or len(complaints) != 1):
        raise AssertionError(f"bad input takes one line: {words} {out.getvalue()[-300:]} {said[-600:]}")


def _command(source: draw.Source) -> list[str]:
    name = source.PickValueInList(list(_VERBS))
    verb, words = _VERBS[name], [name]
    if verb.arguments:
        for _ in range(source.PickValueInList([1, 1, 1, 1, 1, 1, 2, 0])):
            words += _word(source, verb.arguments).split(" ")
    if name in ("reproduce", "validate", "demo"):
        words.append(source.PickValueInList(["--help", "nothing"]))
    for option, values in (verb.wanted | verb.others).items():
        if source.ConsumeIntInRange(0, 31) < (31 if option in verb.wanted else 1 if option in _OWN else 8):
            words += [option] if values is None else [option, _word(source, values)]
    if name == "plan":
        words += source.PickValueInList(_REFUSED_PLANS.split("|")).split(" ")
    for _ in range(source.PickValueInList([0] * 12 + [1, 2])):
        junk = source.ConsumeUnicodeNoSurrogates(6).replace(":", "").replace("/", "")
        words.insert(source.ConsumeIntInRange(0, len(words)), junk)
    return words


def _word(source: draw.Source, words: str) -> str:
    odd = source.ConsumeIntInRange(0, 31) == 0
    return source.PickValueInList((_ODD if odd else words).split("|"))


def _typed(source: draw.Source) -> bytes:
    if source.ConsumeIntInRange(0, 3) == 0:
        return source.ConsumeBytes(400)
    return Path(source.PickValueInList(["scores.csv", "result.json", "odd.json"])).read_bytes()


def _prepare() -> None:
    """Files to name, in the current folder; and the first page, which loads what all pages share."""
    rng = np.random.default_rng(0)
    included = rng.integers(0, 2, 60)
    pairs = list(zip(rng.normal(2.0 * included).tolist(), included.tolist(), strict=True))
    Path("scores.csv").write_text("score,included\n" + "".join(f"{s},{i}\n" for s, i in pairs))
    Path("scores.jsonl").write_text("".join(f'{{"score": {s}, "included": {i}}}\n' for s, i in pairs))
    Path("odd.csv").write_bytes(b"score,included\n1,1\n\xff,0\n")
    Path("odd.json").write_text('{"format": 1}')
    Result(lower_bound(Counts(73, 100, 1000), 1e-5), ApproximateDP(2.0, 1e-5)).save("result.json")
    Result(lower_bound(Ranking(rng.random(60) < 0.9), 1e-5)).save("ranking.json")
    page([explain(Result(lower_bound(Counts(7, 9, 9))))])


if __name__ == "__main__":
    seeds = [np.random.default_rng(seed).bytes(120) for seed in range(200)]
    harness.run("command_line", one, seeds, _prepare)
