"""Randomized response, Laplace and Gaussian of diffprivlib, used well, badly, and to the last digit.

    python examples/diffprivlib_mechanisms.py

Everybody hides behind a coin: included, or not. An included person adds 1 to a cell that is theirs alone, and
every cell is released with noise. The claim is the epsilon (and delta) that diffprivlib is asked for.

The last digits are a matter of their own. 1 + noise, where it comes out near 0, is a multiple of 2^-53 in
floating point; 0 + noise has finer digits there. A release with such digits comes from a 0 for certain,
however well the noise is drawn (Mironov 2012; Haney and others 2022): the Laplace and Gaussian mechanisms of
diffprivlib 0.6 do not keep their promise to somebody who reads all digits. Its snapping mechanism does.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from diffprivlib import mechanisms

from canaria import Bound, play
from canaria.claims import ApproximateDP
from canaria.rules import Surest


def cells(kind: Any, **options: Any) -> Callable[..., Any]:
    """A mechanism for `play`: one cell per person, all released by one diffprivlib mechanism."""

    def mechanism(included: Any, rng: np.random.Generator) -> Any:
        noisy = kind(**options, random_state=int(rng.integers(2**31)))
        return np.array([noisy.randomise(float(count)) for count in included])

    return mechanism


def moved(places: Any, rng: np.random.Generator) -> Any:
    """Everybody sits in one of two cells; the sensitivity of that table is 2, not 1."""
    noisy = mechanisms.Laplace(epsilon=1.0, sensitivity=1.0, random_state=int(rng.integers(2**31)))
    return np.array([[noisy.randomise(float(count)) for count in place] for place in places])


def same_seed(included: Any, rng: np.random.Generator) -> Any:
    """Somebody wants reproducible results, so every cell gets the same noise."""
    seed = int(rng.integers(2**31))
    noisy = [mechanisms.Laplace(epsilon=1.0, sensitivity=1.0, random_state=seed) for _ in included]
    return np.array([cell.randomise(float(count)) for cell, count in zip(noisy, included, strict=True)])


def numpy_laplace(included: Any, rng: np.random.Generator) -> Any:
    return included + rng.laplace(size=len(included))


def answers(labels: Any, rng: np.random.Generator) -> Any:
    noisy = mechanisms.Binary(epsilon=1.0, value0="no", value1="yes", random_state=int(rng.integers(2**31)))
    return np.array([noisy.randomise(label) for label in labels])


def high(output: Any, known: Any) -> Any:
    """As good as the likelihood ratio: beyond 0 and 1, where the surest are, Laplace's is constant."""
    return output - 0.5


def second_place(output: Any, known: Any) -> Any:
    return np.clip(output[:, 1], 0, 1) - np.clip(output[:, 0], 0, 1)


def fine_digits(output: Any, known: Any) -> Any:
    """-1 where only a 0 can have been released, else 0."""
    return -1.0 * ((np.abs(output) < 0.5) & (np.ldexp(output, 53) % 1 != 0))


def audits(confidence: float, rng: np.random.Generator) -> Iterator[tuple[str, float, Bound]]:
    n, delta = 10_000, 1e-6
    game = play(
        answers, lambda out, known: 2 * (out == "yes") - 1, Surest(n), pairs=[("no", "yes")] * n, rng=rng
    )
    yield "randomized response (Binary)", 1.0, game.bound(confidence=confidence)

    laplace = cells(mechanisms.Laplace, epsilon=1.0, sensitivity=1.0)
    snapping = cells(mechanisms.Snapping, epsilon=1.0, sensitivity=1.0, lower=-100, upper=100)
    gaussian = cells(mechanisms.Gaussian, epsilon=1.0, delta=delta, sensitivity=1.0)
    analytic = cells(mechanisms.GaussianAnalytic, epsilon=4.0, delta=delta, sensitivity=1.0)

    game = play(laplace, high, Surest(n // 2), n=n, rng=rng)
    yield "Laplace", 1.0, game.bound(confidence=confidence)
    game = play(snapping, high, Surest(n // 3), n=n, rng=rng)
    yield "Snapping", 1.0, game.bound(confidence=confidence)
    game = play(gaussian, high, Surest(2500), n=50_000, rng=rng)
    yield "Gaussian", 1.0, game.bound(delta, confidence)
    game = play(analytic, high, Surest(500), n=50_000, rng=rng)
    yield "GaussianAnalytic", 4.0, game.bound(delta, confidence)

    game = play(snapping, fine_digits, Surest(n // 12), n=n, rng=rng)
    yield "Snapping, by its last digits", 1.0, game.bound(confidence=confidence)
    game = play(laplace, fine_digits, Surest(n // 12), n=n, rng=rng)
    yield "Laplace, by its last digits", 1.0, game.bound(confidence=confidence)
    game = play(gaussian, fine_digits, Surest(n // 60), n=n, rng=rng)
    yield "Gaussian, by its last digits", 1.0, game.bound(delta, confidence)
    game = play(numpy_laplace, fine_digits, Surest(n // 12), n=n, rng=rng)
    yield "numpy's Laplace, by its last digits", 1.0, game.bound(confidence=confidence)

    game = play(moved, second_place, Surest(n // 4), pairs=[((1, 0), (0, 1))] * n, rng=rng)
    yield "Laplace, sensitivity 1 though people move", 1.0, game.bound(confidence=confidence)
    game = play(
        same_seed, lambda out, known: out - (out.min() + out.max()) / 2, Surest(2000), n=2000, rng=rng
    )
    yield "Laplace, the same seed for every cell", 1.0, game.bound(confidence=confidence)


def main(confidence: float = 0.999, seed: int = 0) -> None:
    for name, claimed, bound in audits(confidence, np.random.default_rng(seed)):
        claim = ApproximateDP(claimed, bound.delta, bound.adjacency)  # each is claimed for what is played
        verdict = "REFUTED" if bound.refutes(claim) else "not refuted"
        print(f"{name:<45} claims ({claimed:.3f}, {bound.delta:g}), bound {bound.epsilon:.3f}: {verdict}")


if __name__ == "__main__":
    main()
