"""Audits programs without changes: everything that they make private is audited while they run."""

from collections.abc import Iterator
from contextlib import contextmanager

from canaria._core.seeds import Seed
from canaria.integrations.opacus._program_audit import ProgramAudit
from canaria.integrations.opacus._programs import noticing
from canaria.training.canaries.designs import Dense, Dirac
from canaria.training.watch import Watch


@contextmanager
def auditing(
    canaries: int | Dense | Dirac | None = None,
    *,
    rng: Seed = None,
    per_coordinate: int = 1,
    on_error: str = "warn",
    changes_weights: bool = False,
    watch: Watch | None = None,
    insist: bool = False,
) -> Iterator[ProgramAudit]:
    """Audit all training with Opacus inside this context, without changes to the program.

    Private optimizers and data loaders are detected when they are made, by `PrivacyEngine.make_private*` or
    directly. Each gets an audit with `injection="sum"`, which requires nothing from the program and does not
    change its random numbers. If a training cannot be audited, it continues, and the report says why.

    Args:
        canaries: A number of Dirac canaries, or a design such as `Dense`. By default 1,000, or as many as fit
            into half of the weights of a small model.
        rng: A seed for the hidden bits and the places of the canaries.
        per_coordinate: The number of Dirac canaries per weight.
        on_error: The action if a training cannot be audited any further: "warn" or "raise".
        changes_weights: Whether the program changes weights by functions of the weights alone; see `attach`.
        watch: A watch for the noise of every training, or None.
        insist: Whether to stop the program before its first private step if that cannot be audited. The step
            then raises an `InputError`, which is also in `stopped`.

    Yields:
        The audits. Call `report` when the program has ended.

    Example:
        ```python
        with auditing(canaries=1000) as audit:
            program()
        print(audit.report(delta=1e-5))
        ```
    """
    audit = ProgramAudit(
        canaries,
        rng,
        per_coordinate=per_coordinate,
        on_error=on_error,
        changes_weights=changes_weights,
        watch=watch,
        insist=insist,
    )
    with noticing(audit):
        yield audit
