"""Faults of clipping that are certain: a gradient weighs more than one clip norm in the clipped sum.

Each function returns the contradiction in words; nothing if the weight is within the limit.
"""

from typing import Final

from canaria.training.canaries.designs import Dense, Design

_TOO_HEAVY: Final = 1.05
"""The limit of 1, and room for rounding errors, which are far smaller."""
PROBES: Final = (0.03, 0.1, 0.3, 0.9, 1.1, 1.5, 3.0, 6.0, 30.0, 1e3, 1e5)
"""Sizes of gradients, in clip norms, with which a clipper is tried.

All canaries have one size. A clipper may also let gradients pass that are larger than its author expected, or
scale up small ones."""


def _above(weight: float, found: str, fault: str) -> tuple[str, ...]:
    return (f"{found}, above the limit of 1: {fault}",) if weight > _TOO_HEAVY else ()


def too_heavy(heaviest: float, design: Design, *, apart: bool = False) -> tuple[str, ...]:
    """A canary weighed up to `heaviest` clip norms in the clipped sum of a step.

    If `apart`, layers are clipped separately and `heaviest` is in units of the clip norm of a layer.
    """
    if isinstance(design, Dense):
        return ()
    found = f"canaries weighed {heaviest:.3g} clip norms in the clipped sum of a step"
    fault = "gradients are not clipped to the clip norm as a whole"
    if apart:
        found = f"canaries weighed {heaviest:.3g} norms of a layer in its clipped sum"
        fault = "the layer is not clipped to its norm"
    return _above(heaviest, found, f"{fault}, or a row is in a batch twice")


def too_heavy_in(heaviest: dict[str, float]) -> tuple[str, ...]:
    """Canaries weighed up to this many clip norms, by parameter."""
    heavy = {name: weight for name, weight in heaviest.items() if weight > _TOO_HEAVY}
    most = max(heavy.values(), default=0.0)
    fault = "gradients are not clipped, or a parameter is left out of their norm"
    return _above(most, f"a canary weighed {most:.3g} clip norms in {', '.join(heavy)}", fault)


def clipped_apart(weight: float) -> tuple[str, ...]:
    """A gradient that is large in every parameter weighed this many clip norms."""
    fault = "gradients are not clipped to the clip norm as a whole"
    return _above(weight, f"a gradient over all parameters weighed {weight:.3g} clip norms", fault)


def amplified(size: float, weight: float) -> tuple[str, ...]:
    """A clipper gives a gradient of this size this weight, both in clip norms."""
    found = f"the clipper made {weight:.3g} clip norms of a gradient of {size:.3g}"
    return _above(weight, found, "it does not bound the contribution of a row")


def unclipped(heaviest: float) -> tuple[str, ...]:
    """Each row added this many clip norms to the clipped sum of a step, on average."""
    found = f"the clipped sum of a step has a norm of {heaviest:.3g} clip norms per row"
    return _above(heaviest, found, "gradients are not clipped to the norm that the noise is made for")
