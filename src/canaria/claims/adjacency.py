"""Whether bounds and claims are about the same neighbours."""

from collections.abc import Iterable

from canaria._core.errors import InputError


def require_same_adjacency(measured: str, claimed: str) -> None:
    """Check that a bound and a claim are about the same neighbours; "unspecified" is read as add-remove.

    Accountants promise add-remove epsilons, so that is how a claim that does not say is read. Replace-one
    must be stated on both sides: a replace-one epsilon can be twice the add-remove one, so a bound on it
    would refute a true add-remove claim (Theorem 20).

    Args:
        measured: The adjacency of the bound.
        claimed: The adjacency of the claim.

    Raises:
        InputError: If the adjacencies differ, or if one is replace-one and the other is not stated.

    Example:
        >>> from canaria import InputError
        >>> from canaria.claims import require_same_adjacency
        >>> require_same_adjacency("add-remove", "unspecified")
        >>> try:
        ...     require_same_adjacency("replace", "add-remove")
        ... except InputError as error:
        ...     print(str(error).partition(";")[0])
        adjacency of the bound (replace) and of the claim (add-remove) must be the same
    """
    stated = {measured, claimed} - {"unspecified"}
    if len(stated) > 1:
        raise InputError(
            f"adjacency of the bound ({measured}) and of the claim ({claimed}) must be the same; "
            "a replace-one epsilon can be up to twice the add-remove one"
        )
    if measured != claimed and "replace" in stated:
        known, silent = ("bound", "claim") if claimed == "unspecified" else ("claim", "bound")
        raise InputError(
            f"the {known} is about replace-one neighbours, and the adjacency of the {silent} is not stated; "
            f"give the {silent} adjacency='replace' if it is about them too (an accountant's epsilon is "
            "add-remove)"
        )


def common_adjacency(what: str, adjacencies: Iterable[str]) -> str:
    """The adjacency that several claims or bounds share; "unspecified" is read as add-remove.

    Returns:
        The adjacency, "unspecified" if none is stated.

    Raises:
        InputError: If they differ, or if some are replace-one and others not stated.

    Example:
        >>> from canaria.claims.adjacency import common_adjacency
        >>> common_adjacency("parts", ["add-remove", "unspecified"])
        'add-remove'
    """
    found = set(adjacencies)
    if "replace" in found and len(found) > 1:
        raise InputError(
            f"{what} must be for one adjacency, got {' and '.join(sorted(found))} "
            "(unspecified is read as add-remove)"
        )
    return "add-remove" if "add-remove" in found else found.pop()
