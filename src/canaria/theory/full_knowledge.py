"""A demonstration of an INVALID method: guessing each bit with full knowledge of all others."""

import numpy as np

from canaria._core import checks, seeds
from canaria._core.seeds import Seed
from canaria.claims import ApproximateDP
from canaria.evidence import Counts
from canaria.mechanisms import XorRandomizedResponse
from canaria.theory.efficacy import THEORY


def demonstrate_full_knowledge(
    epsilon: float = 1.0, n: int = 20, trials: int = 2000, rng: Seed = None
) -> str:
    """Show that full-knowledge auditing accuses a correct mechanism; the text says that it is invalid.

    The mechanism releases the parity of all bits through randomized response, so it is epsilon-DP. Knowing
    all other bits, every element is guessed right exactly when the released parity is true: V is n with
    probability p(epsilon) and 0 otherwise, far from Binomial(n, p(epsilon)).

    Args:
        epsilon: The epsilon of the mechanism.
        n: The number of elements, at least 2.
        trials: The number of simulated audits.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from canaria.theory import demonstrate_full_knowledge
        >>> print(demonstrate_full_knowledge(epsilon=1.0, n=20, trials=200, rng=0))
        INVALID METHOD, for demonstration only: full-knowledge auditing of XOR with randomized response
        (epsilon = 1, n = 20) has all guesses right in 69.0% of 200 audits, none right in 31.0%,
        and refutes the true claim at a nominal 5% in 69.0% of them.
    """
    checks.integer("n", n, 2)
    generator = seeds.generator(rng, THEORY)
    mechanism = XorRandomizedResponse(epsilon)
    bits = generator.choice(np.array([-1, 1], dtype=np.int8), (checks.integer("trials", trials, 1), n))
    output = mechanism.sample(bits, generator)
    correct = np.zeros(trials, dtype=np.int64)
    for element in range(n):
        known = bits.copy()
        known[:, element] = 0
        correct += np.sign(mechanism.loss(output, known)[:, element]) == bits[:, element]
    # Either all guesses are right or none is, so these two counts are all that an audit can see.
    refuted = Counts(n, n, n).refutes(ApproximateDP(epsilon, delta=0), 0.05)
    accused = float((correct == n).mean()) if refuted else 0.0
    return (
        "INVALID METHOD, for demonstration only: full-knowledge auditing of XOR with randomized response\n"
        f"(epsilon = {epsilon:g}, n = {n}) has all guesses right in {(correct == n).mean():.1%} of "
        f"{trials} audits, none right in {(correct == 0).mean():.1%},\n"
        f"and refutes the true claim at a nominal 5% in {accused:.1%} of them."
    )
