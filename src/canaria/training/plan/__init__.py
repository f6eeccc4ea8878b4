"""Planning an audit of DP-SGD before it is run: which bound to expect, and what would improve it.

The audit is that of `canaria.training`: n Dirac canaries, s to a coordinate, scored by their likelihood, in
one run. Nothing is trained: audits are played with losses and bits that are drawn from their law.

- The law is exact for one canary to a coordinate, and a fixed sample of 65,536 coordinates for several
  (`_law`).
- Given the loss, the probability that a guess is right and the number of included canaries on a coordinate
  are exact. So is the fact that the canaries of one coordinate share their loss.
- The guesses are those of the rule, and the verdicts on claims those of its evidence. Few claims are tested
  (`_verdicts`).
- Means, spreads and powers are taken over 50 to 400 played audits from a fixed seed: of 400, the mean has a
  standard error of a twentieth of the deviation.

Beyond that error the expected bound is within 5% of simulated games (tests/training/plan/test_plan.py). A
plan is not evidence: it assumes that training does what it says.
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
