"""Checks of what any function releases: neighbours are made, and a score is learned."""

from canaria.game.release.check import check_release
from canaria.game.release.neighbours import Pair, neighbours_of
from canaria.game.release.outputs import numbers_of

__all__ = ["Pair", "check_release", "neighbours_of", "numbers_of"]
