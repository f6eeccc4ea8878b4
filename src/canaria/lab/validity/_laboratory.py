"""The laboratory: each auditor in each case in which it must be valid, in blocks on any engine."""

import inspect
import math
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import redirect_stdout, suppress
from dataclasses import KW_ONLY, dataclass, replace
from hashlib import sha256
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError, nearest, shown
from canaria._version import __version__
from canaria.lab.engines import run_blocks
from canaria.lab.store import Store, source_digest
from canaria.lab.validity._cell import Cell
from canaria.lab.validity._games import Auditor, Case, Game
from canaria.lab.validity.attacks import ADAPTIVE
from canaria.lab.validity.auditors import INVALID, OURS, AuditFunction, Foreign, Ours, Several
from canaria.lab.validity.cases import ONE_RUN
from canaria.lab.validity.correlated import CORRELATED
from canaria.lab.validity.curves import CURVES
from canaria.lab.validity.matrix import Matrix
from canaria.lab.validity.orders import ORDERS
from canaria.lab.validity.runs import RUNS

CASES: Final[dict[str, Case]] = {
    case.name: case for case in (*ONE_RUN, *CURVES, *ORDERS, *RUNS, *CORRELATED, *ADAPTIVE)
}
AUDITORS: Final[dict[str, Auditor]] = {auditor.name: auditor for auditor in (*OURS, *INVALID)}

_BOUNDS_IN_A_BLOCK: Final = 250
_SCORES_IN_A_BLOCK: Final = 10**6
_LARGEST_BOUND: Final = 1000.0
_ROUNDING: Final = 1e-9

Row = dict[str, Any]


class Block(NamedTuple):
    """Some audits of one cell: whole bounds, or only tests of the true claim."""

    auditor: Auditor
    case: str
    only_claims: bool
    number: int
    audits: int
    confidence: float
    seed: int


@dataclass(frozen=True)
class Laboratory:
    """The auditors and cases to run, with the number of audits of each.

    Attributes:
        auditors: The auditors.
        cases: The cases, all from `CASES`.
        audits: The number of audits in each cell that compute a bound from scores.
        claims: The number of further audits that only test whether the true claim is refuted, which takes one
            p-value. Only canaria's own rules can be tested this way.
        confidence: The confidence of the bounds.
        seed: The seed of the games.

    Raises:
        InputError: If an attribute is out of range, if two auditors have the same name, or if no auditor must
            withstand any of the cases.

    Example:
        >>> from canaria.lab.validity import CASES, Foreign, Laboratory
        >>> timid = Foreign("timid", lambda scores, bits, delta, confidence: 0.0)
        >>> print(Laboratory((timid,), (CASES["rr-1"],), audits=10).run().verdict)
        No auditor claims more than the truth too often, as far as these audits show.
    """

    auditors: tuple[Auditor, ...]
    cases: tuple[Case, ...]
    _: KW_ONLY
    audits: int
    claims: int = 0
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        checks.integer("audits", self.audits, 1)
        checks.integer("claims", self.claims, 0)
        checks.integer("seed", self.seed, 0)
        checks.confidence(self.confidence)
        names = [auditor.name for auditor in self.auditors]
        if len(set(names)) < len(names):
            raise InputError(f"auditors must have different names, got {shown(names)}")
        for case in self.cases:
            if CASES.get(case.name) is not case:
                raise InputError(f"case must be one of the laboratory's own, got {shown(case.name)}")
        if not any(case.withstood_by(auditor) for auditor in self.auditors for case in self.cases):
            needs = ", ".join(f"{case.name} ({case.known})" for case in self.cases)
            raise InputError(
                f"no auditor need withstand these cases; their scores know more than allowed: {needs}"
            )

    def settings(self) -> dict[str, Any]:
        """All settings that affect results, including the code, so that only the same code resumes a run."""
        return {
            "auditors": [[auditor.name, auditor.known, _fingerprint(auditor)] for auditor in self.auditors],
            "cases": [case.name for case in self.cases],
            "audits": self.audits,
            "claims": self.claims,
            "confidence": self.confidence,
            "seed": self.seed,
            "canaria": __version__,
            "code": source_digest(),
        }

    def cells(self) -> Iterator[tuple[Auditor, Case, dict[str, Block]]]:
        """Each auditor with each case in which it must be valid, and the blocks by name."""
        for place, auditor in enumerate(self.auditors):
            folder = f"{place}-{re.sub(r'[^a-zA-Z0-9]+', '-', auditor.name)}"
            for case in self.cases:
                if case.withstood_by(auditor):
                    blocks = self._blocks(auditor, case)
                    yield auditor, case, {f"{folder}/{_file(block)}": block for block in blocks}

    def _blocks(self, auditor: Auditor, case: Case) -> Iterator[Block]:
        claims = self.claims * auditor.pace if isinstance(auditor, Ours | Several) else 0
        scores = _SCORES_IN_A_BLOCK // case.n
        for only_claims, total, size in (
            (False, math.ceil(self.audits * case.pace), min(scores, _BOUNDS_IN_A_BLOCK)),
            (True, math.ceil(claims * case.pace), scores),
        ):
            for number, start in enumerate(range(0, total, size)):
                audits = min(size, total - start)
                yield Block(auditor, case.name, only_claims, number, audits, self.confidence, self.seed)

    def run(
        self,
        store: Store | None = None,
        executor: Executor | None = None,
        on_block: Callable[[int, int], None] = lambda done, total: None,
    ) -> Matrix:
        """Play all games and count the false claims; arguments as for `run_blocks`.

        Raises:
            InputError: If an auditor cannot be sent to other processes.
        """
        cells = list(self.cells())
        blocks = {name: block for _, _, named in cells for name, block in named.items()}
        if executor is not None:
            self._require_portable()
        rows = run_blocks(run_block, blocks, store, executor, on_block)
        return Matrix(
            tuple(
                _counted(auditor, case, self.confidence, [row for name in named for row in rows[name]])
                for auditor, case, named in cells
            )
        )

    def _require_portable(self) -> None:
        for auditor in self.auditors:
            try:
                ForkingPickler.dumps(auditor)
            except Exception as error:
                raise InputError(
                    f"auditor {auditor.name} cannot be sent to other processes ({type(error).__name__}); "
                    "make it a function of a module, or use one worker"
                ) from None


def laboratory(
    auditors: Sequence[str | Auditor | AuditFunction] = (),
    cases: Sequence[str] = (),
    audits: int = 200,
    claims: int = 0,
    confidence: float = 0.95,
    seed: int = 0,
) -> Laboratory:
    """Make a laboratory for canaria's auditors, given by name, and for any others.

    Args:
        auditors: Names in `AUDITORS`, auditors, or functions `(scores, bits, delta, confidence) -> epsilon`.
            By default all of `AUDITORS`, including the controls, which are invalid on purpose.
        cases: Names in `CASES`; by default all.
        audits: The number of audits in each cell that compute a bound from scores.
        claims: The number of further audits that only test whether the true claim is refuted.
        confidence: The confidence of the bounds.
        seed: The seed of the games.

    Example:
        >>> from canaria.lab.validity import laboratory
        >>> def timid(scores, bits, delta, confidence):
        ...     return 0.0
        >>> len(laboratory([timid]).cases)
        98
    """
    chosen = [_auditor(one) for one in ([auditors] if isinstance(auditors, str) else auditors)]
    return Laboratory(
        tuple(chosen) or tuple(AUDITORS.values()),
        tuple(_named("case", name, CASES) for name in dict.fromkeys(cases)) or tuple(CASES.values()),
        audits=audits,
        claims=claims,
        confidence=confidence,
        seed=seed,
    )


def run_block(
    auditor: Auditor, case: str, only_claims: bool, number: int, audits: int, confidence: float, seed: int
) -> list[Row]:
    """Play one block. The games are the same on every engine and for every auditor."""
    played = CASES[case]
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(case.encode()), only_claims, number))
    # Two streams, so that games do not depend on how many ties an auditor breaks.
    games_rng, ties_rng = map(np.random.default_rng, sequence.spawn(2))
    drawn = played.draw((audits, played.n), games_rng, 1 - confidence)
    in_order, runs = played.known != "nothing", drawn.audits or (None,) * audits
    games = [
        Game(scores, bits, in_order, run)
        for scores, bits, run in zip(drawn.scores, drawn.bits, runs, strict=True)
    ]
    asked = (played.delta, confidence, ties_rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if only_claims:
            assert isinstance(auditor, Ours | Several)
            refuted = sum(auditor.refutes(game, played.epsilon, *asked) for game in games)
            return [{"claims": audits, "refuted": refuted}]
        answers = [_answer(auditor, game, *asked) for game in games]
    bounds = [answer for answer in answers if isinstance(answer, float)]
    errors = [answer for answer in answers if isinstance(answer, str)]
    false = sum(bound > played.epsilon * (1 + _ROUNDING) + _ROUNDING for bound in bounds)
    total = math.fsum(min(bound, _LARGEST_BOUND) for bound in bounds)
    return [{"audits": audits, "false": false, "total": total, "errors": errors[:1], "failed": len(errors)}]


def _answer(auditor: Auditor, *asked: Any) -> float | str:
    """The bound, or the error as text: an auditor that sometimes fails is still measured."""
    try:
        with redirect_stdout(sys.stderr):
            found = np.asarray(auditor.bound(*asked))
        if found.size != 1 or found.dtype.kind not in "iuf" or np.isnan(found).any():
            raise TypeError(f"a bound must be one number, got {shown(found.tolist())}")
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {shown(str(error))}"
    return max(0.0, float(found.item()))


def _counted(auditor: Auditor, case: Case, confidence: float, rows: list[Row]) -> Cell:
    def total(name: str) -> Any:
        return sum(row.get(name, 0) for row in rows)

    answered = total("audits") - total("failed")
    errors = [error for row in rows for error in row.get("errors", ())]
    return Cell(
        auditor=auditor.name,
        control=auditor.control,
        case=case,
        confidence=confidence,
        audits=total("audits"),
        false=total("false"),
        errors=total("failed"),
        mean=total("total") / answered if answered else 0.0,
        claims=total("claims"),
        refuted=total("refuted"),
        error=errors[0] if errors else None,
    )


def _file(block: Block) -> str:
    return f"{block.case}-{'claims' if block.only_claims else 'bounds'}-{block.number}"


def _fingerprint(auditor: Auditor) -> str:
    """A digest of the source of a foreign auditor's modules, if available."""
    if not isinstance(auditor, Foreign):
        return ""
    digest = sha256()
    for module in (sys.modules.get(auditor.name.partition(":")[0]), inspect.getmodule(auditor.audit)):
        with suppress(OSError, TypeError):
            digest.update(inspect.getsource(module).encode() if module else b"")
    return digest.hexdigest()[:16]


def _auditor(given: "str | Auditor | AuditFunction") -> Auditor:
    if isinstance(given, str):
        found: Auditor = replace(_named("auditor", given, AUDITORS), control=False)
        return found
    if callable(given) and not hasattr(given, "bound"):
        return Foreign(getattr(given, "__name__", type(given).__name__), given)
    return given  # type: ignore[return-value]


def _named(what: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        own = " or module:function" if what == "auditor" else ""
        raise InputError(
            f"{what} must be one of {', '.join(known)}{own}, got {shown(name)}{nearest(name, known)}"
        )
    return known[name]
