"""Audits from outside: canaries planted in a data set by fair coins, scored by what the model answers.

Nothing is known of the training but its data set and its outcome.
"""

from canaria.blackbox.plant import Planted, plant

__all__ = ["Planted", "plant"]
