"""Training tests use real Opacus; its own advice is not an error."""

import pytest

_ADVICE = (
    "ignore:Secure RNG turned off",
    "ignore:Full backward hook is firing",
    "ignore:Using a non-full backward hook",
    "ignore:Optimal order is the",
    "ignore:.*torch.jit.*:DeprecationWarning",
    "ignore:In CPU autocast",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "integrations" in item.path.parts:
            for advice in _ADVICE:
                item.add_marker(pytest.mark.filterwarnings(advice))
