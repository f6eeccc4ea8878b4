"""Checks of what any function releases: neighbours are made, and a score is learned."""

from canaria.game.release.check import check_release
from canaria.game.release.neighbours import Pair, neighbours_of
from canaria.game.release.outputs import numbers_of
from canaria.game.release.runs import Runner

__all__ = ["Pair", "Runner", "check_release", "neighbours_of", "numbers_of"]
