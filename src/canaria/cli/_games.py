"""Playing games by name, and what came of them as results."""

from typing import Any, Final

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError
from canaria.cli._load import load_function
from canaria.evidence.bound import Bound
from canaria.game.play import Transcript, play_many
from canaria.mechanisms import Function, parse_mechanism
from canaria.results.ladders import ladder_of_gaps
from canaria.results.parts import Histogram, Ladder
from canaria.results.result import Result
from canaria.rules import parse_rule
from canaria.theory import gaps

_LARGEST_EXPLAINED: Final = 5000


def audited_mechanism(mechanism: str, options: dict[str, Any], adaptive: bool) -> Any:
    """A built-in mechanism, or a function of the user."""
    if ":" not in mechanism:
        return parse_mechanism(mechanism, **options)
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"--{given[0]} is for built-in mechanisms, got {mechanism}")
    if adaptive:
        raise InputError("--adaptive needs a built-in mechanism; for a function use --rule online")
    return Function(load_function(mechanism))


def play_named(
    audited: Any, score: str | None, rule: str | None, n: int, trials: int, adaptive: bool, seed: int
) -> list[Transcript]:
    """Play against it, with a score and a rule by name."""
    size = checks.integer("n", n, 1)
    return play_many(
        audited,
        load_function(score) if score else None,
        parse_rule(rule) if rule else None,
        size,
        trials,
        audited.rounds(size) if adaptive else None,
        seed,
    )


def result_of(audited: Any, game: Transcript, bound: Bound, adaptive: bool, **told: Any) -> Result:
    """One game as a result; of a built-in mechanism of moderate size with losses and, in one run, gaps."""
    histogram, ladder = None, None
    if not isinstance(audited, Function) and len(game.bits) <= _LARGEST_EXPLAINED:
        losses = audited.loss(game.output[None], np.zeros_like(game.bits)[None])[0]
        histogram = Histogram.of(losses, game.bits)
        ladder = None if adaptive else _ladder(audited, game, bound)
    return Result(bound, histogram=histogram, ladder=ladder, **told)


def _ladder(audited: Any, game: Transcript, bound: Bound) -> Ladder | None:
    found = gaps(audited, len(game.bits), bound.tally.taken or None, trials=200, rng=0)
    return ladder_of_gaps(found, bound)
