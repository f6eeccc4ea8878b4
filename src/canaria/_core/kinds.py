"""Kinds by name: each is written with its name, and read back by it; nothing in a file is trusted."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from canaria._core.errors import InputError, nearest, shown


class Written(Protocol):
    """What can be written as plain data for JSON."""

    def to_dict(self) -> dict[str, Any]: ...


Kind = TypeVar("Kind", bound=Written)


class Kinds(dict[str, type[Kind]]):
    """The classes of something, such as claims, by name; each is added when it is defined."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def add(self, kind: type[Kind], name: str) -> None:
        """Add a kind; a name can be used once, by one class."""
        taken = self.setdefault(name, kind)
        if (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
            raise TypeError(f"there is a kind of {self._what} named {name} already")
        self[name] = kind

    def written(self, thing: Kind, name: str) -> dict[str, Any]:
        """Plain data, with the name of the kind."""
        return {"kind": name, **thing.to_dict()}

    def read(self, data: object) -> Kind:
        """What `written` wrote; anything else is an InputError. A kind may have a `read` of its own."""
        record = data if isinstance(data, dict) else {}
        name = record.get("kind")
        if not isinstance(name, str) or name not in self:
            known = sorted(self)
            raise InputError(
                f"{self._what} must be of a kind out of {', '.join(known)}, got {shown(name)}"
                f"{nearest(name, known)}"
            )
        fields = {key: value for key, value in record.items() if key != "kind"}
        make: Callable[..., Kind] = getattr(self[name], "read", self[name])
        try:
            return make(**fields)
        except TypeError:
            raise InputError(f"{name} cannot be read from the fields {shown(list(fields))}") from None
        except RecursionError:
            raise InputError(f"{self._what} must not be nested so deeply") from None
