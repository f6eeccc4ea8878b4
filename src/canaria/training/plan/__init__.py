"""Planning an audit of DP-SGD before it is run: which bound to expect, and what would improve it.

The audit is that of `canaria.training`: n Dirac canaries, s to a coordinate, scored by their likelihood, in
one run. Nothing is trained: whole audits are drawn from the law of their losses.

- The law is exact for one canary to a coordinate, and a fixed sample of 65,536 coordinates for several
  (`_law`).
- Given the loss, the probability that a guess is right and the number of included canaries on a coordinate
  are exact. So is the fact that the canaries of one coordinate share their loss.
- The bounds are those of the rules up to a smooth interpolation of the critical counts (`Ranked`, `Around`)
  or a saddle-point formula (`Soft`): about 1%.
- The bounds of `Matched` are exact up to its stretches of claims (6% in noise) and 1% of epsilon.
- Means, spreads and powers are taken over a few hundred to a few thousand drawn audits from a fixed seed.

Altogether the expected bound is within 5% of simulated games (tests/training/plan/test_plan.py). A plan is
not evidence: it assumes that training does what it says.
"""

from canaria.training.plan._expected import Expected, expected_bound, planned_rule, refutation_power
from canaria.training.plan._plan import TOO_SMALL, plan
from canaria.training.plan._report import AuditSettings, Choice, Fault, Limit, Plan

__all__ = [
    "TOO_SMALL",
    "AuditSettings",
    "Choice",
    "Expected",
    "Fault",
    "Limit",
    "Plan",
    "expected_bound",
    "plan",
    "planned_rule",
    "refutation_power",
]
