"""The game: hide fair bits, run a mechanism, let a rule guess the bits, then reveal them.

`play` runs a mechanism, `replay` takes a run that has already happened, `many_runs` runs a mechanism many
times, and `audit_scores` starts from scores. This package does not depend on the kind of evidence that a rule
gives, or on how a bound follows from it.
"""

from canaria._core.coins import CoinWarning
from canaria.game.guesser import Score
from canaria.game.many_runs import many_runs
from canaria.game.play import play, play_many
from canaria.game.replay import replay
from canaria.game.scores import audit_scores, result_of_scores
from canaria.game.transcript import Transcript

__all__ = [
    "CoinWarning",
    "Score",
    "Transcript",
    "audit_scores",
    "many_runs",
    "play",
    "play_many",
    "replay",
    "result_of_scores",
]
