"""One piece of evidence of every kind."""

import numpy as np

from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
)

HITS = np.random.default_rng(0).random(120) < 0.85
RIGHT = int(HITS.sum())
ALL: list[Evidence] = [
    Counts(RIGHT, 120, 200),
    Counts(RIGHT, 120, 200, one_sided=True),
    PublishedCounts(RIGHT, 120, 200),
    UncommittedCounts(RIGHT, 120, 200),
    Budget(RIGHT, 120, 130, 200),
    Ranking(HITS, 200, committed=120),
    Weighted(HITS, weights=np.arange(120), elements=200),
    Weighted(HITS, losses=np.r_[np.inf, -np.inf, np.linspace(-3, 3, 118)], elements=200),
    Bets(np.linspace(0.5, 0.99, 120), HITS, 200),
    Bets(None, HITS, 200),
    Split((Counts(RIGHT, 120, 200), Ranking(HITS, 200, committed=120)), (0.3, 0.7)),
]
