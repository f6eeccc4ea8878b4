"""One registry of the objects that result files name: claims, families of claims, and kinds of evidence.

A file names a kind. The registry contains only classes, so the worst effect of a made-up name is an error.
"""

import math
from abc import ABC
from dataclasses import fields
from typing import Any, Final, Self

from canaria._core.errors import InputError, nearest, shown

KINDS: Final[dict[str, type["Kind"]]] = {}
"""All kinds by name; `Claim.kinds()` returns those of one sort."""


class Kind(ABC):  # noqa: B024 - claims, families and evidence have the abstract methods
    """An object that is written as plain data with the name of its class, and read back by that name.

    A class is registered when it is defined, unless its name starts with an underscore. The name is that of
    the class, or its attribute `name`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Claim, Family and Evidence themselves are sorts, not kinds.
        if Kind in cls.__bases__ or cls.__name__.startswith("_"):
            return
        taken = KINDS.setdefault(name_of(cls), cls)
        # A module that is reloaded, as in notebooks, defines its kinds again.
        if (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"there is a kind named {name_of(cls)} already")
        KINDS[name_of(cls)] = cls

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data for JSON; `read`, by default the constructor, takes them back.

        This default is for a dataclass whose fields are numbers, texts and truth values.
        """
        stored = fields(self)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in stored if field.init}

    @classmethod
    def read(cls, **fields: Any) -> Self:
        """Make an object from the fields that `to_dict` wrote."""
        return cls(**fields)

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """The kinds of this sort by name."""
        return {name: kind for name, kind in KINDS.items() if issubclass(kind, cls)}

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Read the output of `canaria.claims.to_dict`. The data need not be trusted.

        Args:
            data: Plain data, with the name of the kind.

        Example:
            >>> from canaria.claims import ApproximateDP, Claim, to_dict
            >>> Claim.from_dict(to_dict(ApproximateDP(1.0, delta=0)))
            ApproximateDP(epsilon=1.0, delta=0.0, adjacency='unspecified')
        """
        record, sort, known = data if isinstance(data, dict) else {}, cls.__name__.lower(), cls.kinds()
        name = record.get("kind")
        if not isinstance(name, str) or name not in known:
            raise InputError(
                f"{sort} must be of a kind out of {', '.join(sorted(known))}, got {shown(name)}"
                f"{nearest(name, sorted(known))}"
            )
        given = {key: value for key, value in record.items() if key != "kind"}
        try:
            return known[name].read(**given)
        except TypeError:
            raise InputError(f"{name} cannot be read from the fields {shown(list(given))}") from None
        except RecursionError:
            raise InputError(f"{sort} must not be nested so deeply") from None


def name_of(kind: type[Kind]) -> str:
    """The name of a kind in files."""
    name = getattr(kind, "name", None)
    return name if isinstance(name, str) else kind.__name__


def to_dict(thing: Kind) -> dict[str, Any]:
    """Convert a claim, a family or evidence to plain data, with its kind.

    Args:
        thing: The claim, family or evidence.

    Returns:
        Its fields, and under `kind` the name by which `from_dict` reads it back.

    Example:
        >>> from canaria import Counts
        >>> from canaria.claims import GaussianDP, to_dict
        >>> to_dict(GaussianDP(1.0))
        {'kind': 'GaussianDP', 'mu': 1.0, 'adjacency': 'unspecified'}
        >>> to_dict(Counts(90, 100, 1000))["correct"]
        90
    """
    return {"kind": name_of(type(thing)), **thing.to_dict()}


def plain(number: float) -> float | str:
    """A number for JSON; infinity becomes the string "inf"."""
    return number if math.isfinite(number) else str(number)
