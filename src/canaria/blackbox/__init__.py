"""Black-box audits: canaries planted in a data set by fair coins, scored by the answers of the model.

Nothing needs to be known about the training except its data set and the trained model.
"""

from canaria.blackbox.plant import Planted, plant

__all__ = ["Planted", "plant"]
