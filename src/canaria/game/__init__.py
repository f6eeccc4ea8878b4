"""The game: hide fair bits, run a mechanism, let a rule guess the bits, then reveal them.

`play` runs a mechanism, `replay` takes a run that has already happened, `many_runs` runs a mechanism many
times, and `audit_scores` starts from scores. `check_release` makes the data and learns the score itself.
"""

from canaria._core.coins import CoinWarning
from canaria.game.guesser import Score
from canaria.game.many_runs import many_runs
from canaria.game.play import play, play_many
from canaria.game.release import check_release
from canaria.game.replay import replay
from canaria.game.scores import audit_scores, result_of_scores
from canaria.game.transcript import Transcript

__all__ = [
    "CoinWarning",
    "Score",
    "Transcript",
    "audit_scores",
    "check_release",
    "many_runs",
    "play",
    "play_many",
    "replay",
    "result_of_scores",
]
