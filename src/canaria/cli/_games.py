"""Playing games by name, and showing what came of them."""

import json
from typing import Any

from canaria._validate import InputError
from canaria.bound import Bound
from canaria.cli._load import load_function
from canaria.cli._output import in_words
from canaria.game import Transcript, play_many
from canaria.mechanisms import Function, parse_mechanism
from canaria.rules import parse_rule


def play_named(
    mechanism: str,
    options: dict[str, Any],
    score: str | None,
    rule: str | None,
    n: int,
    trials: int,
    adaptive: bool,
    seed: int,
) -> list[Transcript]:
    """Play against a built-in mechanism or a function of the user."""
    audited: Any
    if ":" in mechanism:
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InputError(f"--{given[0]} is for built-in mechanisms, got {mechanism}")
        if adaptive:
            raise InputError("--adaptive needs a built-in mechanism; for a function use --rule online")
        audited = Function(load_function(mechanism))
    else:
        audited = parse_mechanism(mechanism, **options)
    return play_many(
        audited,
        load_function(score) if score else None,
        parse_rule(rule) if rule else None,
        n,
        trials,
        audited.rounds(n) if adaptive else None,
        seed,
    )


def show_games(bounds: list[Bound], details: dict[str, Any], as_json: bool) -> str:
    """All bounds as JSON; in words the first, and the mean of several."""
    mean = sum(bound.epsilon for bound in bounds) / len(bounds)
    if as_json:
        rows = [bound.to_dict() for bound in bounds]
        return json.dumps({**details, "mean": mean, "bounds": rows}, allow_nan=False)
    if len(bounds) == 1:
        return in_words(bounds[0], None)
    right, taken = (sum(bound.tally[k] for bound in bounds) for k in (0, 1))
    return (
        f"mean of the bounds of {len(bounds)} games: {mean:.3f} ({right} of {taken} guesses right)\n"
        f"the first game: {in_words(bounds[0], None)}"
    )
