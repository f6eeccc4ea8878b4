"""Black-box audits: canaries planted in a data set by fair coins, scored by the model's answers.

The audit needs only the training data set and the trained model, or the table that was released.
"""

from canaria.blackbox.gate import Gate, split
from canaria.blackbox.own import own_columns, own_tokens, own_units
from canaria.blackbox.plant import Planted, plant
from canaria.blackbox.tables import own_values, table_scores

__all__ = [
    "Gate",
    "Planted",
    "own_columns",
    "own_tokens",
    "own_units",
    "own_values",
    "plant",
    "split",
    "table_scores",
]
