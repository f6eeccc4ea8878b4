"""Audit differential privacy in one run: lower bounds on epsilon that can be trusted.

PYTEST_DONT_REWRITE (pytest loads our plugin, and would warn where this module was imported before it)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from canaria._version import __version__

if TYPE_CHECKING:
    from canaria._core.errors import InputError
    from canaria.blackbox import plant
    from canaria.bounds import Bound, Result, combine, lower_bound
    from canaria.evidence import Counts
    from canaria.files import load
    from canaria.game import audit_scores, check_release, many_runs, play
    from canaria.testing import assert_private
    from canaria.training.plan import plan

__all__ = [
    "Bound",
    "Counts",
    "InputError",
    "Result",
    "__version__",
    "assert_private",
    "audit_scores",
    "check_release",
    "combine",
    "load",
    "lower_bound",
    "many_runs",
    "plan",
    "plant",
    "play",
]

_HOMES: Final = {
    "canaria._core.errors": ("InputError",),
    "canaria.blackbox": ("plant",),
    "canaria.bounds": ("Bound", "Result", "combine", "lower_bound"),
    "canaria.evidence": ("Counts",),
    "canaria.files": ("load",),
    "canaria.game": ("audit_scores", "check_release", "many_runs", "play"),
    "canaria.testing": ("assert_private",),
    "canaria.training.plan": ("plan",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import canaria` stays fast."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'canaria' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
