"""A fault of training with Opacus, for tests, and for programs of this folder, which find it beside them."""

from typing import Any


def halve_noise(optimizer: Any) -> None:
    """Add half of the noise that is stated and accounted for."""
    added = optimizer.add_noise

    def less() -> None:
        optimizer.noise_multiplier /= 2
        added()
        optimizer.noise_multiplier *= 2

    optimizer.add_noise = less
