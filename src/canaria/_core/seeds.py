"""Random streams: from one seed, one stream for each purpose."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from canaria._core import checks

Seed = int | np.random.SeedSequence | np.random.Generator | None
"""A seed, or an object made from one; None for a fresh seed."""


def generator(rng: Seed, purpose: int) -> np.random.Generator:
    """Make a generator from a seed, a SeedSequence or a Generator (None: fresh).

    The stream depends on `purpose`, so that a seed that was also used to toss the coins does not break ties
    with the same random numbers.
    """
    if isinstance(rng, np.random.Generator):
        sequence = np.random.SeedSequence(int(rng.integers(2**63)))
    elif isinstance(rng, np.random.SeedSequence):
        sequence = rng
    else:
        seed = None if rng is None else checks.integer("rng", rng, 0, 2**63)
        sequence = np.random.SeedSequence(seed)
    # Not spawned: that would change the given object, so that the next call with it gave another stream.
    own = np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, purpose))
    return np.random.default_rng(own)


def set_global(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, with 32 bits."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


@contextmanager
def global_state_kept() -> Iterator[None]:
    """Restore the global generators of Python, NumPy and torch at the end, since programs draw from them."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch: Any = sys.modules.get("torch")
    state = None if torch is None else torch.random.get_rng_state()
    try:
        yield
    finally:
        if state is not None:
            torch.random.set_rng_state(state)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
