"""Black-box audits: canaries planted in a data set by fair coins, for any trainer.

Only the rows of the canaries may depend on the coins: not the length of the data set, nor any sampling rate
or normaliser computed from it, nor its types, categories, labels or layout. Each canary has a place:

- replace: the place holds either the canary or its stand-in (replace-one adjacency);
- zero-out: the place holds the canary, with a weight of 1 or 0 that the trainer must honour (add-remove
  adjacency, where a row of weight 0 contributes nothing).

The game is then that of the theorems, and scores from the trained model give valid bounds (Theorem 24).
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, seeds
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.blackbox._joins import take
from canaria.bounds.bound import Bound
from canaria.claims.families import Family
from canaria.game.scores import bound_of_scores
from canaria.rules import Rule

_PLANT: Final = 0x706C616E
_FORMS: Final = {"replace": "replace", "zero-out": "add-remove"}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Planted:
    """A data set to train on, with the data needed to audit the trained model.

    Keep `bits` away from training. Printing this object does not show them.

    Attributes:
        dataset: The data set to train on.
        bits: The coin of each canary, or of each unit of several rows: +1 if it was included, -1 if not.
        indices: The index of each canary, or its stand-in, in `dataset`.
        adjacency: "replace", or "add-remove" for form="zero-out".
        canaries: The canaries, to be scored after training.
        weights: The weight of each row in training, 1 or 0; None unless form="zero-out".
        units: The unit of each canary's row, as given to `plant`; empty if each row has its own coin.

    Example:
        >>> import numpy as np
        >>> from canaria import plant
        >>> from canaria.blackbox.canaries import noise
        >>> data = (np.random.default_rng(0).normal(size=(2000, 4)), np.zeros(2000))
        >>> planted = plant(data, noise(*data, 500, rng=0), rng=0)
        >>> rows = {row.tobytes() for row in planted.dataset[0]}  # a "model" that remembers every row
        >>> scores = [row.tobytes() in rows for row in planted.canaries[0]]
        >>> print(planted.bound(scores, rng=0))
        ε ≥ 4.890 at δ = 0, with 95% confidence: 450 of 450 guesses right, 500 elements
        all of the 450 surest guesses are right: only more of them can show more
    """

    dataset: Any
    bits: Bits
    indices: Integers
    adjacency: str
    canaries: Any
    weights: Floats | None = None
    units: tuple[Hashable, ...] = ()

    def __repr__(self) -> str:
        """Omits the bits, because training logs often print their inputs."""
        return f"Planted({len(self.bits)} canaries, adjacency={self.adjacency!r})"

    def bound(
        self,
        scores: npt.ArrayLike | Mapping[Any, float],
        delta: float = 0.0,
        confidence: float = 0.95,
        rule: Rule | None = None,
        rng: Seed = None,
        *,
        family: Family | str | None = None,
    ) -> Bound:
        """The lower bound on epsilon from one score per canary; arguments as for `audit_scores`.

        Scores of a unit's rows are added up. They may come in any order as a dict or a series whose keys are
        the units.
        """
        most = max(np.bincount(_numbered(self.units)), default=1) if self.units else 1
        if family is not None and most > 1:
            raise InputError("family is about single rows, this bound about units of several: leave it out")
        found = bound_of_scores(
            self._by_coin(scores),
            self.bits,
            delta,
            confidence,
            rule,
            rng,
            adjacency=self.adjacency,
            family=family,
        )
        return replace(found, about=f"units of up to {most} rows") if most > 1 else found

    def _by_coin(self, scores: Any) -> npt.ArrayLike:
        """One score for each coin."""
        coins = list(dict.fromkeys(self.units))
        if not coins:
            return np.asarray(scores)
        keys = list(scores.keys()) if hasattr(scores, "items") else []
        # The index of a series may be the numbers of its rows, which are no names, whatever units are called.
        numbered = not isinstance(scores, Mapping) and keys == list(range(len(self.units)))
        if set(keys) == set(coins) and not numbered:
            return np.array([scores[one] for one in coins], dtype=np.float64)
        each = checks.vector("scores", scores)
        checks.same_length("scores", len(each), "rows of canaries", len(self.units))
        return np.bincount(_numbered(self.units), weights=each)


def plant(
    dataset: Any,
    canaries: Any,
    rng: Seed = None,
    *,
    stand_ins: Any = None,
    form: str = "replace",
    unit: Iterable[Hashable] | None = None,
) -> Planted:
    """Plant canaries in a data set, each by an independent fair coin.

    Only the rows of the canaries depend on the coins. Types, categories and layout are those of a table of
    all rows: the data set, the canaries and the stand-ins. If a canary does not fit the type of a column, the
    column's type changes whatever the coin shows. Rows are numbered from 0.

    Args:
        dataset: An array, a tensor, a pandas object, a `TensorDataset`, a Hugging Face `Dataset`, a list, a
            tuple or dict of these with one row per example, or anything with a length and `dataset[i]` (any
            other torch Dataset, whose rows that a canary may take are read once, now).
        canaries: The canaries, of the same type as `dataset` (for a Dataset, also a list of items).
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.
        stand_ins: Only for form="replace": one row per canary, which is added to the data set and takes the
            place of the canary if that is excluded. By default canaries take the places of real rows chosen
            at random.
        form: "replace": a canary either replaces its stand-in or is left out. "zero-out": all canaries are
            added, and `weights` says which of them count.
        unit: Whose row each canary is, such as the name of a user or the number of a document. Rows of one
            unit share a coin, and the bound is about units. Only for "zero-out" or with stand-ins: otherwise
            the rows of a unit would replace rows of several others.

    Example:
        >>> import numpy as np
        >>> planted = plant((np.zeros((50, 3)), np.zeros(50)), (np.ones((4, 3)), np.ones(4)), rng=0)
        >>> planted.dataset[0].shape, planted.adjacency
        ((50, 3), 'replace')
        >>> bool(np.all(planted.dataset[1][planted.indices] == (planted.bits > 0)))
        True
    """
    if form not in _FORMS:
        tell = (
            "; if rows were left out, the length of the data set would reveal the bits"
            if form == "drop"
            else ""
        )
        raise InputError(f"form must be 'replace' or 'zero-out', got {shown(form)}{tell}")
    if form == "zero-out" and stand_ins is not None:
        raise InputError("stand_ins go with form='replace'; zero-out keeps every canary in its place")
    generator = seeds.generator(rng, _PLANT)
    real, count = _rows("dataset", dataset), _rows("canaries", canaries)
    units = _units(unit, count, paired=form == "zero-out" or stand_ins is not None)
    each, coin, weights = np.arange(count), _numbered(units) if units else np.arange(count), None
    bits = 2 * generator.integers(0, 2, coin.max() + 1, dtype=np.int8) - np.int8(1)
    included = bits[coin] > 0
    sources: tuple[Any, ...] = (dataset, canaries)
    if form == "zero-out":
        weights = np.concatenate([np.ones(real), included])
        indices, order = real + each, np.arange(real + count)
    elif stand_ins is None:
        if count > real:
            raise InputError(f"canaries must be at most the {real} rows that they may replace, got {count}")
        indices, order = generator.choice(real, count, replace=False), np.arange(real)
    else:
        checks.same_length("stand_ins", _rows("stand_ins", stand_ins), "canaries", count)
        sources = (dataset, canaries, stand_ins)
        indices, order = real + each, np.concatenate([np.arange(real), real + count + each])
    # Included canaries take their places; with weights, all canaries are there already.
    order[indices[included]] = real + each[included]
    return Planted(
        dataset=take(sources, order, indices),
        bits=bits,
        indices=indices,
        adjacency=_FORMS[form],
        canaries=canaries,
        weights=weights,
        units=units,
    )


def _units(unit: Iterable[Hashable] | None, count: int, *, paired: bool) -> tuple[Hashable, ...]:
    """The unit of each row; empty if each has its own coin."""
    if unit is None:
        return ()
    units = tuple(unit.tolist() if hasattr(unit, "tolist") else unit)
    checks.same_length("unit", len(units), "canaries", count)
    if any(one is None or (isinstance(one, float) and math.isnan(one)) for one in units):
        raise InputError("unit must name the unit of each row, got a missing value")
    if not paired:
        raise InputError(
            "unit goes with form='zero-out' or with stand_ins: otherwise the rows of a unit would replace "
            "rows of several others"
        )
    return units


def _numbered(units: Iterable[Hashable]) -> Integers:
    """The number of each row's unit, in the order in which they come first."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in units])


def _rows(name: str, data: Any) -> int:
    """The number of examples; all parts must agree."""
    parts = list(data.values()) if isinstance(data, dict) else data
    if isinstance(data, dict | tuple):
        lengths = {_rows(name, part) for part in parts}
        if len(lengths) != 1:
            raise InputError(f"{name} must have parts of one length, got {sorted(lengths)}")
        return lengths.pop()
    try:
        length = 0 if isinstance(data, str | bytes) else len(data)
    except TypeError:
        raise InputError(
            f"{name} must have a length that counts its rows, got {type(data).__name__}"
        ) from None
    if length == 0:
        raise InputError(f"{name} must hold at least one row, got none")
    return length
