"""Privacy claims as tests: assertions, and a pytest plugin with one false-alarm rate for a whole suite.

pytest imports this package in every run on a machine where canaria is installed. It therefore imports nothing
else until a test needs it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canaria.testing.assertions import assert_private, assert_private_release, assert_private_training

__all__ = ["assert_private", "assert_private_release", "assert_private_training"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'canaria.testing' has no attribute {name!r}")
    from canaria.testing import assertions

    return getattr(assertions, name)
