"""Kinds of evidence: what an audit saw, and its p-value against a claim."""

from canaria.evidence import tradeoff
from canaria.evidence._protocol import (
    Bracketed,
    Capped,
    Decided,
    Evidence,
    Explained,
    Measured,
    Perfectible,
    Progress,
    Screened,
    Tally,
    from_dict,
    to_dict,
)
from canaria.evidence.bets import Bets
from canaria.evidence.budget import Budget
from canaria.evidence.counts import Counts, PublishedCounts, UncommittedCounts
from canaria.evidence.ranking import Ranking
from canaria.evidence.split import Split
from canaria.evidence.tradeoff import Tradeoff
from canaria.evidence.weighted import Weighted

__all__ = [
    "Bets",
    "Bracketed",
    "Budget",
    "Capped",
    "Counts",
    "Decided",
    "Evidence",
    "Explained",
    "Measured",
    "Perfectible",
    "Progress",
    "PublishedCounts",
    "Ranking",
    "Screened",
    "Split",
    "Tally",
    "Tradeoff",
    "UncommittedCounts",
    "Weighted",
    "from_dict",
    "to_dict",
    "tradeoff",
]
