"""Rules: how scores become guesses, without sight of the bits.

A rule is a frozen dataclass. Calling it with scores commits to guesses. Only then does `reveal` compare them
with the bits and return the evidence.
"""

from canaria.rules._guesses import Commitment, Guesses, Rule
from canaria.rules._parse import parse_rule, written
from canaria.rules.adaptive import AdaptiveRule, All, Bet, ChoosingRule, SurestFirst, UpTo
from canaria.rules.around import Around
from canaria.rules.fixed import Soft, Surest, Tails, Threshold, Top
from canaria.rules.matched import Matched
from canaria.rules.online import Online, OnlineRounds
from canaria.rules.ranked import Ranked

__all__ = [
    "AdaptiveRule",
    "All",
    "Around",
    "Bet",
    "ChoosingRule",
    "Commitment",
    "Guesses",
    "Matched",
    "Online",
    "OnlineRounds",
    "Ranked",
    "Rule",
    "Soft",
    "Surest",
    "SurestFirst",
    "Tails",
    "Threshold",
    "Top",
    "UpTo",
    "parse_rule",
    "written",
]
