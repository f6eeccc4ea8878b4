"""Randomized response, Laplace and Gaussian of OpenDP, used well and used badly.

    python examples/opendp_mechanisms.py

Everybody hides behind a coin: included, or not. An included person adds 1 to cells of a table that are theirs
alone, and the table is released once. The claim is what OpenDP says itself (`measurement.map`), or what the
author of a mistake believes. OpenDP cannot be seeded: bounds differ a little from run to run, and at
99.999% confidence no run of this script is likely to see a false alarm.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import opendp.prelude as dp

from canaria import Bound, play
from canaria.claims import ApproximateDP
from canaria.rules import Surest

dp.enable_features("contrib")

COUNTS = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
FLOATS = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)


def gaussian(scale: float, delta: float) -> Any:
    """With the claim as (epsilon, delta) instead of zero-concentrated DP."""
    concentrated = dp.m.make_gaussian(COUNTS[0], dp.l2_distance(T=float), scale=scale)
    return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(concentrated), delta=delta)


def released(measurement: Any, cells: int = 1, each: float = 1) -> Callable[..., Any]:
    """A mechanism for `play`: a row of cells per person, to each of which an included person adds `each`."""

    def mechanism(included: Any, rng: np.random.Generator) -> Any:
        table = np.repeat(included, cells) * each
        return np.reshape(measurement(table.tolist()), (len(included), cells))

    return mechanism


def moved(measurement: Any) -> Callable[..., Any]:
    """The same where a person sits in one of two cells (replace-one)."""
    return lambda places, rng: np.reshape(measurement(np.ravel(places).tolist()), (len(places), 2))


def closer_to_one(output: Any, known: Any) -> Any:
    """The likelihood ratio of Laplace noise, but for a factor: how much nearer to 1 than to 0."""
    return (2 * np.clip(output, 0, 1) - 1).sum(axis=1)


def larger(output: Any, known: Any) -> Any:
    """The likelihood ratio of Gaussian noise, but for a factor and a shift."""
    return (output - 0.5).sum(axis=1)


def second_place(output: Any, known: Any) -> Any:
    return closer_to_one(output[:, 1:], known) - closer_to_one(output[:, :1], known)


def fine_digits(output: Any, known: Any) -> Any:
    """Naive 1 + noise, where it comes out near 0, is a multiple of 2^-53; -1 where that is not so."""
    return -1.0 * ((np.abs(output) < 0.5) & (np.ldexp(output, 53) % 1 != 0))[:, 0]


def audits(confidence: float, rng: np.random.Generator) -> Iterator[tuple[str, float, Bound]]:
    n, delta = 8000, 1e-7
    response = dp.m.make_randomized_response_bool(prob=0.75)
    game = play(
        lambda answers, rng: np.array([response(answer) for answer in answers]),
        lambda output, known: np.where(output, 1.0, -1.0),
        Surest(n),
        pairs=[(False, True)] * n,
        rng=rng,
    )
    yield "randomized response", response.map(d_in=1), game.bound(confidence=confidence)

    n = 20_000
    counts = dp.m.make_laplace(*COUNTS, scale=1.0)
    game = play(released(counts), closer_to_one, Surest(n), n=n, rng=rng)
    yield "Laplace on counts", counts.map(d_in=1), game.bound(confidence=confidence)

    floats = dp.m.make_laplace(*FLOATS, scale=1.0)
    game = play(released(floats, each=1.0), closer_to_one, Surest(n // 2), n=n, rng=rng)
    yield "Laplace on floats", floats.map(d_in=1.0), game.bound(confidence=confidence)
    game = play(released(floats, each=1.0), fine_digits, Surest(600), n=8000, rng=rng)
    yield "Laplace on floats, by its last digits", floats.map(d_in=1.0), game.bound(confidence=confidence)

    normal = gaussian(scale=1.0, delta=delta)
    game = play(released(normal), larger, Surest(n // 40), n=n, rng=rng)
    yield "Gaussian on counts", normal.map(d_in=1.0)[0], game.bound(delta, confidence)

    game = play(moved(counts), second_place, Surest(n // 2), pairs=[((1, 0), (0, 1))] * n, rng=rng)
    yield "Laplace, d_in=1 though people move", counts.map(d_in=1), game.bound(confidence=confidence)

    game = play(released(dp.m.make_laplace(*COUNTS, scale=0.5)), closer_to_one, Surest(n), n=n, rng=rng)
    yield "Laplace, scale=epsilon", 0.5, game.bound(confidence=confidence)

    wide, cells = dp.m.make_laplace(*COUNTS, scale=2.0), 16
    game = play(released(wide, cells), closer_to_one, Surest(1000), n=4000, rng=rng)
    claimed = wide.map(d_in=math.isqrt(cells))
    yield "Laplace, d_in is an L2 norm", claimed, game.bound(confidence=confidence)

    game = play(
        released(normal, each=5), lambda output, known: output[:, 0] - 2.5, Surest(n // 2), n=n, rng=rng
    )
    yield "Gaussian, d_in=1 though people add 5", normal.map(d_in=1.0)[0], game.bound(delta, confidence)


def main(confidence: float = 0.99999, seed: int = 0) -> None:
    for name, claimed, bound in audits(confidence, np.random.default_rng(seed)):
        claim = ApproximateDP(claimed, bound.delta, bound.adjacency)  # each is claimed for what is played
        verdict = "REFUTED" if bound.refutes(claim) else "not refuted"
        print(f"{name:<45} claims ({claimed:.3f}, {bound.delta:g}), bound {bound.epsilon:.3f}: {verdict}")


if __name__ == "__main__":
    main()
