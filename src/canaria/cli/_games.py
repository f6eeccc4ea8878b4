"""Plays games against named mechanisms, and turns them into results."""

from dataclasses import replace
from typing import Any

from canaria._core import checks
from canaria._core.errors import InputError
from canaria.bounds.bound import Bound
from canaria.bounds.parts import Ladder
from canaria.bounds.result import Result
from canaria.cli._load import load_function
from canaria.game.ladders import ladder_of_gaps
from canaria.game.play import play_many
from canaria.game.transcript import LARGEST_EXPLAINED, Transcript
from canaria.mechanisms import Function, parse_mechanism
from canaria.rules import parse_rule
from canaria.theory import gaps


def audited_mechanism(mechanism: str, options: dict[str, Any], adaptive: bool) -> Any:
    """Make a built-in mechanism, or load a user's function."""
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
    """Play games, with a named score and rule."""
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


def result_of(audited: Any, game: Transcript, adaptive: bool, **more: Any) -> Result:
    """One game as a result, with the three gaps for non-adaptive games of built-in mechanisms."""
    built_in = not isinstance(audited, Function)
    result = game.result(mechanism=audited if built_in else None, **more)
    if built_in and not adaptive and len(game.bits) <= LARGEST_EXPLAINED:
        return replace(result, ladder=_ladder(audited, game, result.bound))
    return replace(result, ladder=None)


def _ladder(audited: Any, game: Transcript, bound: Bound) -> Ladder | None:
    found = gaps(audited, len(game.bits), bound.tally.taken or None, trials=200, rng=0)
    return ladder_of_gaps(found, bound)
