"""Local mechanisms: each element is handled on its own, so there is no interference."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats
from canaria._core.errors import InputError
from canaria.mechanisms._protocol import OneRound, Outcomes, Output, called


@dataclass(frozen=True)
class RandomizedResponse(OneRound):
    """Each bit is released as it is with probability p(epsilon), flipped otherwise; |loss| = epsilon.

    Attributes:
        epsilon: The privacy level, at least 0.

    Example:
        >>> RandomizedResponse(2.0).loss(np.array([[1, -1]]), np.zeros((1, 2)))
        array([[ 2., -2.]])
    """

    epsilon: float
    adjacency: ClassVar[str] = "replace"

    def __post_init__(self) -> None:
        checks.nonnegative("epsilon", self.epsilon)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The noisy bits."""
        keep = rng.random(bits.shape) < 1 / (1 + math.exp(-self.epsilon))
        return np.where(keep, bits, -bits)

    def loss(self, output: Output, known: Bits) -> Floats:
        """The output times epsilon."""
        return np.where(known == 0, self.epsilon * output, 0.0)

    def outcomes(self, n: int) -> Outcomes:
        """One outcome stands for all."""
        # |loss| is epsilon for every element, whatever the output.
        return Outcomes(np.ones((1, n)), np.ones(1))


@dataclass(frozen=True)
class LocalLaplace(OneRound):
    """Each bit in {-1, 1} gets Laplace noise of scale 2 / epsilon.

    loss = epsilon / 2 (|o + 1| - |o - 1|); guessing every element is right with probability 1 - e^(-epsilon /
    2) / 2.

    Attributes:
        epsilon: The privacy level, positive and finite.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalLaplace
        >>> print(play(LocalLaplace(2.0), n=1000, rng=0).bound())
        ε ≥ 1.690 at δ = 0, with 95% confidence: 537 of 609 guesses right, 1000 elements
    """

    epsilon: float
    adjacency: ClassVar[str] = "replace"

    def __post_init__(self) -> None:
        checks.positive("epsilon", self.epsilon)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The noisy bits."""
        return bits + rng.laplace(scale=2 / self.epsilon, size=bits.shape)

    def loss(self, output: Output, known: Bits) -> Floats:
        """Linear in the output, clipped at -epsilon and epsilon."""
        return np.where(known == 0, self.epsilon * np.clip(output, -1, 1), 0.0)

    def closed_efficacy(self, n: int, k: int) -> float | None:
        """1 - e^(-epsilon / 2) / 2 if every element is guessed, else None."""
        return 1 - math.exp(-self.epsilon / 2) / 2 if k == n else None


@dataclass(frozen=True)
class LocalGaussian(OneRound):
    """Each bit in {-1, 1} gets Gaussian noise of standard deviation sigma; loss = 2 o / sigma^2.

    Attributes:
        sigma: The standard deviation, positive and finite.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalGaussian
        >>> print(play(LocalGaussian(1.0), n=1000, rng=0).bound(delta=1e-5))
        ε ≥ 3.210 at δ = 1e-05, with 95% confidence: 122 of 122 guesses right, 1000 elements
        all of the 122 surest guesses are right: only more of them can show more
    """

    sigma: float
    adjacency: ClassVar[str] = "replace"
    epsilon: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        checks.positive("sigma", self.sigma)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The noisy bits."""
        return bits + rng.normal(scale=self.sigma, size=bits.shape)

    def loss(self, output: Output, known: Bits) -> Floats:
        """Linear in the output, and unbounded."""
        return np.where(known == 0, 2 * output / self.sigma**2, 0.0)

    def closed_efficacy(self, n: int, k: int) -> float | None:
        """Phi(1 / sigma) if every element is guessed, else None."""
        return 0.5 * math.erfc(-1 / (self.sigma * math.sqrt(2))) if k == n else None


@dataclass(frozen=True)
class Local(OneRound):
    """Any local mechanism, from a user's function for one element.

    Attributes:
        draw: A function `(values, rng)` that returns one output for every value in {-1, 1} of an array of any
            shape.
        log_density: A function `(outputs, value)` that returns ln of the density (or probability) of each
            output given the value.
        epsilon: The privacy level; infinite by default.

    Example:
        >>> import numpy as np
        >>> from scipy import stats
        >>> from canaria.mechanisms import Local
        >>> cauchy = Local(
        ...     draw=lambda values, rng: values + rng.standard_cauchy(values.shape),
        ...     log_density=lambda outputs, value: stats.cauchy.logpdf(outputs, value),
        ... )
        >>> cauchy.loss(np.array([[1.0, -1.0]]), np.zeros((1, 2))).round(2).tolist()
        [[1.61, -1.61]]
    """

    draw: Callable[[Any, np.random.Generator], Any]
    log_density: Callable[[Any, int], Any]
    epsilon: float = math.inf
    adjacency: ClassVar[str] = "replace"

    def __post_init__(self) -> None:
        checks.nonnegative("epsilon", self.epsilon)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The outputs of `draw`."""
        output = np.asarray(called("draw", self.draw, bits, rng))
        if output.shape != bits.shape:
            raise InputError(f"draw must return shape {bits.shape}, got {output.shape}")
        return output

    def loss(self, output: Output, known: Bits) -> Floats:
        """The difference of the two log densities."""
        with np.errstate(invalid="ignore"):
            ratio = np.subtract(
                *(called("log_density", self.log_density, output, value) for value in (1, -1))
            )
        if np.shape(ratio) != known.shape or np.isnan(ratio).any():
            raise InputError("log_density must return one number per output, possible under some value")
        return np.where(known == 0, ratio, 0.0)
