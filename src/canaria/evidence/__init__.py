"""Evidence: what an audit saw, its p-value against a claim, and the last claim that it refutes.

A kind of evidence does not depend on other kinds, on rules, or on how its guesses were made. Code outside
this package does not ask which kind it has.
"""

from canaria._core.errors import AuditWarning
from canaria._core.kinds import to_dict
from canaria.evidence.base import Evidence, Inversion, Progress, Tally
from canaria.evidence.bets import Bets
from canaria.evidence.budget import Budget
from canaria.evidence.counts import Counts, PublishedCounts, UncommittedCounts
from canaria.evidence.inversion import EPSILON_GRID
from canaria.evidence.matched import MatchedCounts
from canaria.evidence.ranking import Ranking
from canaria.evidence.split import Split
from canaria.evidence.weighted import Weighted

__all__ = [
    "EPSILON_GRID",
    "AuditWarning",
    "Bets",
    "Budget",
    "Counts",
    "Evidence",
    "Inversion",
    "MatchedCounts",
    "Progress",
    "PublishedCounts",
    "Ranking",
    "Split",
    "Tally",
    "UncommittedCounts",
    "Weighted",
    "to_dict",
]
