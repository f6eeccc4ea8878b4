"""How well a mechanism can be audited in one run: efficacy, the three gaps, tightness.

This is the theory of the paper (see docs/paper.md): expectations over games, not bounds. This package does
not depend on rules, results or training.
"""

from canaria.theory.efficacy import Accuracy, ac_ddp, ae_ac_ddp, ddp, efficacy, total_variation
from canaria.theory.full_knowledge import demonstrate_full_knowledge
from canaria.theory.gaps import Gaps, gaps
from canaria.theory.tightness import Tightness, certain_elements, exposed_elements, tightness

__all__ = [
    "Accuracy",
    "Gaps",
    "Tightness",
    "ac_ddp",
    "ae_ac_ddp",
    "certain_elements",
    "ddp",
    "demonstrate_full_knowledge",
    "efficacy",
    "exposed_elements",
    "gaps",
    "tightness",
    "total_variation",
]
