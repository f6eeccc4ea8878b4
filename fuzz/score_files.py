"""Score files: any bytes, and files that are nearly right; what was read is audited."""

import gzip
import io
import sys
from typing import Any, Final

import numpy as np

from canaria._core.errors import InputError
from canaria.game.score_files import read_scores
from canaria.game.scores import audit_scores
from canaria.rules import Online, Ranked, Rule, Soft, Surest, Tails, Threshold, Top
from fuzz import draw, harness

_AUDITED_UP_TO: Final = 100
_AUDITED: Final = 3
_NAMES: Final = [
    "score",
    "included",
    " score ",
    "Score",
    "score\ufeff",
    "",
    '"score"',
    "note",
    "included,",
    "{",
    "loss",
    "Member",
    "included;score",
]
_CELLS: Final = [
    "1",
    "0",
    "-1",
    "true",
    "FALSE",
    " 1 ",
    "nan",
    "inf",
    "1e999",
    "1e-400",
    "0x1",
    "1_0",
    "",
    "\x00",
    '"',
    '"1"',
    '"a\nb"',
    "\u0661",
    "+.5e3",
    "1.",
    ".",
    "1e",
    "9" * 400,
    "null",
    "{}",
    "[1]",
    "yes",
    "No",
    "0,5",
    "1;0",
    "1.0",
]
_ENDS: Final = ["\n", "\r\n", "\r", "\n\n", "", "\x0b", "\u2028"]


def one(data: bytes) -> None:
    """Read; of what was read audit a part, if it is small."""
    source = draw.Source(data)
    delta, confidence = draw.delta(source), max(draw.confidence(source), 0.05)
    audited, rule, text = source.ConsumeIntInRange(0, _AUDITED) == 0, _rule(source), _file(source)
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text))
    try:
        scores, included = read_scores("-")
        assert len(scores) == len(included) > 0
        assert np.isfinite(scores).all()
        if audited and len(scores) <= _AUDITED_UP_TO:
            harness.check(audit_scores(scores, included, delta, confidence, rule, rng=0))
    except InputError as error:
        harness.check_refusal(error)
    finally:
        sys.stdin = before


def _rule(source: draw.Source) -> Rule:
    way, number = source.ConsumeIntInRange(0, 7), source.ConsumeIntInRange(1, 20)
    rules: list[Any] = [
        Ranked(),
        Ranked(),
        Online(number + 1),
        Soft(),
        Tails(number),
        Top(number),
        Surest(number),
    ]
    return rules[way] if way < len(rules) else Threshold(draw.share(source) * number)


def _file(source: draw.Source) -> bytes:
    """Any bytes; a sound file with a few bytes changed; cells and names that are nearly right."""
    way = source.ConsumeIntInRange(0, 3)
    if way == 0:
        return source.ConsumeBytes(harness.MOST_BYTES)
    rows = source.ConsumeIntInRange(0, 40)
    if way == 1:
        return _sound(source, 4 * rows)
    names = ["score", "included"]
    if source.ConsumeBool():
        names = [source.PickValueInList(_NAMES) for _ in range(source.ConsumeIntInRange(1, 4))]
    cells = [[source.PickValueInList(_CELLS) for _ in names] for _ in range(rows)]
    if way == 2:
        lines = [",".join(names), *map(",".join, cells)]
    else:
        lines = ["{" + ", ".join(map(_entry, names, row)) + "}" for row in cells]
    return source.PickValueInList(_ENDS).join(lines).encode()


def _entry(name: str, cell: str) -> str:
    return f'"{name}": {cell}'


def _sound(source: draw.Source, rows: int) -> bytes:
    rng = np.random.default_rng(source.ConsumeIntInRange(0, 2**32 - 1))
    included = rng.integers(0, 2, rows)
    size, shift = (
        source.PickValueInList([1.0, 0.0, 1e-320, 1e300, 1e-9]),
        source.ConsumeFloatInRange(0.0, 9.0),
    )
    scores = size * np.round(rng.normal(shift * included), source.ConsumeIntInRange(0, 9))
    lines = [f"{score},{bit}" for score, bit in zip(scores.tolist(), included.tolist(), strict=True)]
    if source.ConsumeBool():
        lines = [
            f'{{"score": {score}, "included": {bit}}}' for score, bit in zip(scores, included, strict=True)
        ]
    else:
        lines.insert(0, "score,included")
    text = bytearray("\n".join(lines).encode())
    for _ in range(source.ConsumeIntInRange(0, 3) if text else 0):
        text[source.ConsumeIntInRange(0, len(text) - 1)] = source.ConsumeIntInRange(0, 255)
    return bytes(text)


def _binary() -> list[bytes]:
    """Files of NumPy, plain and compressed, for the fuzzer to damage."""
    plain, archive = io.BytesIO(), io.BytesIO()
    np.save(plain, np.array([[0.5, 1.0], [-0.5, 0.0]]))
    np.savez(archive, score=[0.5, -0.5], included=[1, 0])
    return [plain.getvalue(), archive.getvalue(), gzip.compress(b"score,included\n1,1\n", mtime=0)]


if __name__ == "__main__":
    files = [
        b"score,included\n1.5,1\n-0.5,false\n",
        b'{"score": 1, "included": true}\n{"score": 0, "included": false}',
        b'{"score": [1, 0], "included": [true, false]}',
        b"score;member\n0.5;yes\n-1.25;no\n",
        b'score\tincluded\tnote\n0.5\t1\t"a\tb"\n-1.25\t-1\t\n',
        *_binary(),
    ]
    random = [np.random.default_rng(seed).bytes(300) for seed in range(60)]
    harness.run("score_files", one, [*random, *(bytes(20) + text for text in files)])
