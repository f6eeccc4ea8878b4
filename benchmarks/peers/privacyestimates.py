"""privacy-estimates: intervals of epsilon from the confusion matrix of an attack.

It is about attacks on many models and leaves the guesses to its users: here the upper half of all scores,
which knows no bits. Its fourth method, `joint-dirichlet`, fails with a TypeError whatever it is given.
"""

from privacy_estimates import AttackResults, compute_eps_lo

from ._scores import Bits, Floats, claim, groups, upper_half

PACKAGE = "privacy-estimates==0.1.0.post1"
CHECK = "privacy_estimates"


def _bound(scores: Floats, bits: Bits, delta: float, confidence: float, method: str) -> float:
    if groups(scores, bits) is None:
        return 0.0
    guesses, labels = upper_half(scores).astype(int).tolist(), (bits > 0).astype(int).tolist()
    counted = AttackResults.from_guesses_and_labels(guesses, labels)
    return claim(compute_eps_lo(counted, delta, 1 - confidence, method))


def clopper_pearson_half(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`compute_eps_lo(method="beta")` for the upper half. Claims eps_lo <= eps with that confidence."""
    return _bound(scores, bits, delta, confidence, "beta")


def jeffreys_half(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`compute_eps_lo(method="jeffreys")` for the upper half. Claims the same (Bayesian, approximate)."""
    return _bound(scores, bits, delta, confidence, "jeffreys")


def joint_beta_half(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`compute_eps_lo(method="joint-beta")` for the upper half. Claims the same (a credible interval)."""
    return _bound(scores, bits, delta, confidence, "joint-beta")


AUDITORS = {audit.__name__: audit for audit in (clopper_pearson_half, jeffreys_half, joint_beta_half)}
