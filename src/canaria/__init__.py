"""Audit differential privacy in one run: lower bounds on epsilon that can be trusted.

PYTEST_DONT_REWRITE (pytest loads our plugin, and would warn where this module was imported before it)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from canaria._version import __version__

if TYPE_CHECKING:
    from canaria._coins import CoinWarning
    from canaria._validate import InputError
    from canaria.audit import audit_scores
    from canaria.bound import EPSILON_GRID, Bound, lower_bound
    from canaria.classic_game import classic
    from canaria.conforming import Conformance, conformance
    from canaria.evidence import (
        Bets,
        Budget,
        Counts,
        Evidence,
        PublishedCounts,
        Ranking,
        Split,
        Tradeoff,
        UncommittedCounts,
        Weighted,
        tradeoff,
    )
    from canaria.game import Transcript, play, play_many, replay
    from canaria.planning import Plan, plan
    from canaria.planting import Planted, plant
    from canaria.results import Result
    from canaria.rules import (
        All,
        Bet,
        Online,
        Ranked,
        Rule,
        Soft,
        Surest,
        SurestFirst,
        Tails,
        Threshold,
        Top,
        UpTo,
    )
    from canaria.several import Together, together
    from canaria.testing import assert_private, assert_private_training

__all__ = [
    "EPSILON_GRID",
    "All",
    "Bet",
    "Bets",
    "Bound",
    "Budget",
    "CoinWarning",
    "Conformance",
    "Counts",
    "Evidence",
    "InputError",
    "Online",
    "Plan",
    "Planted",
    "PublishedCounts",
    "Ranked",
    "Ranking",
    "Result",
    "Rule",
    "Soft",
    "Split",
    "Surest",
    "SurestFirst",
    "Tails",
    "Threshold",
    "Together",
    "Top",
    "Tradeoff",
    "Transcript",
    "UncommittedCounts",
    "UpTo",
    "Weighted",
    "__version__",
    "assert_private",
    "assert_private_training",
    "audit_scores",
    "classic",
    "conformance",
    "lower_bound",
    "plan",
    "plant",
    "play",
    "play_many",
    "replay",
    "together",
    "tradeoff",
]

_HOMES: Final = {
    "canaria._coins": ("CoinWarning",),
    "canaria._validate": ("InputError",),
    "canaria.audit": ("audit_scores",),
    "canaria.bound": ("EPSILON_GRID", "Bound", "lower_bound"),
    "canaria.evidence": (
        *("Bets", "Budget", "Counts", "Evidence", "PublishedCounts", "Ranking"),
        *("Split", "Tradeoff", "UncommittedCounts", "Weighted", "tradeoff"),
    ),
    "canaria.classic_game": ("classic",),
    "canaria.conforming": ("Conformance", "conformance"),
    "canaria.planning": ("Plan", "plan"),
    "canaria.planting": ("Planted", "plant"),
    "canaria.results": ("Result",),
    "canaria.game": ("Transcript", "play", "play_many", "replay"),
    "canaria.several": ("Together", "together"),
    "canaria.testing": ("assert_private", "assert_private_training"),
    "canaria.rules": (
        *(
            "All",
            "Bet",
            "Online",
            "Ranked",
            "Rule",
            "Soft",
            "Surest",
            "SurestFirst",
            "Tails",
            "Threshold",
            "Top",
            "UpTo",
        ),
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import canaria` stays light."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'canaria' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
