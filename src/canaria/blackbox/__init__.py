"""Black-box audits: canaries planted in a data set by fair coins, scored by the model's answers.

The audit needs only the training data set and the trained model.
"""

from canaria.blackbox.plant import Planted, plant

__all__ = ["Planted", "plant"]
