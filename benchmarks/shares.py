"""What a Gaussian claim would show with other shares of the level for its looks. Run by `make bench-shares`.

`Matched` gives most of the level to one number of guesses, the one that suits scores of the family's own
shape, and a little to others. More for all guesses shows more where scores have another shape, and less where
they have this one. `--write` puts the table into RESULTS.md.
"""

import argparse
import os
import tempfile
from unittest import mock

import numpy as np
from sections import write
from side_by_side.settings import DELTA, Setting, simulated

from canaria import audit_scores
from canaria.claims import families
from canaria.evidence import _looks

MARK = "<!-- shares -->"
SHARES = (
    (1.0, 0.0, 0.0),
    (0.86, 0.05, 0.04),
    (0.78, 0.04, 0.14),
    (0.6, 0.02, 0.36),
    (0.45, 0.01, 0.53),
    (0.3, 0.01, 0.68),
)
"""Of the main look, of each one beside it, and of all guesses."""


def chosen() -> list[tuple[int, Setting]]:
    """The settings with 1,000 elements that are no training, and their places among all, which seed them."""
    places = enumerate(sorted(simulated(), key=lambda setting: setting.n))
    return [
        (place, setting)
        for place, setting in places
        if setting.n == 1000 and not setting.name.startswith("DP-SGD")
    ]


def shown(place: int, setting: Setting) -> float:
    """The mean bound over the audits of a setting."""
    scores, bits = setting.draw(setting.audits, np.random.default_rng([7, place]))
    family = families.Gaussian()
    audits = [audit_scores(*audit, DELTA, family=family) for audit in zip(scores, bits, strict=True)]
    return float(np.mean([audit.epsilon for audit in audits]))


def row(main: float, side: float, everything: float) -> str:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, XDG_CACHE_HOME=folder),
        mock.patch.multiple(_looks, _MAIN=main, _SIDE=side, _ALL=everything),
    ):
        _looks.planned.cache_clear()
        cells = [f"{shown(*one):.2f}" for one in chosen()]
    return f"| {main:g}, {side:g}, {everything:g} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    names = [setting.name.removesuffix(", n = 1,000") for _, setting in chosen()]
    lines = [
        "",
        "## Shares of the level for the looks of a Gaussian claim (`make bench-shares`)",
        "",
        f"ε at δ = {DELTA:g} of the weakest refuted Gaussian claim, n = 1,000, means of the audits of the "
        "table above; shares of the main look, of each one beside it, and of all guesses. Ours are "
        f"{_looks._MAIN:g}, {_looks._SIDE:g}, {_looks._ALL:g}.",
        "",
        f"| shares | {' | '.join(names)} |",
        "| --- " * (1 + len(names)) + "|",
        *(row(*shares) for shares in SHARES),
        "",
    ]
    print("\n".join(lines))
    if options.write:
        write(MARK, lines)


if __name__ == "__main__":
    main()
