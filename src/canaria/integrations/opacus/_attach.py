"""Attaches an audit to training with Opacus."""

from dataclasses import replace
from typing import Any, Final

import torch
from opacus.optimizers import DPOptimizer
from torch import nn

from canaria._core import checks, seeds
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.integrations.opacus._audit import Audit
from canaria.integrations.opacus._checks import (
    require_fitting,
    require_fresh,
    require_private,
    require_sampling,
)
from canaria.integrations.opacus._injections import MAKERS
from canaria.integrations.opacus._internals import clippers_of, clips_by_ghost, is_together
from canaria.integrations.opacus._samplers import Loader, batches_of
from canaria.integrations.opacus._steps import Given
from canaria.integrations.opacus._versions import GhostClipper
from canaria.training.canaries.designs import Dense, Dirac, design_of
from canaria.training.canaries.sampling import Sampling

_ATTACH: Final = 0x61747461


def attach(
    optimizer: DPOptimizer,
    data_loader: Loader,
    *,
    injection: str,
    canaries: int | Dense | Dirac,
    per_coordinate: int = 1,
    rng: Seed = None,
    noise_multiplier: float | None = None,
    state: dict[str, Any] | None = None,
    on_error: str = "warn",
    begun: bool = False,
    sampling: str | Sampling = "poisson",
    model: nn.Module | GhostClipper | None = None,
    changes_weights: bool = False,
    public_rows: int = 0,
) -> Audit:
    """Attach an audit to the optimizer and data loader that `PrivacyEngine.make_private` returned.

    Args:
        optimizer: The private optimizer.
        data_loader: The data loader of training. With "rows", it must use Opacus' Poisson sampling. With
            "sum", its sampler may be the program's own, and its draws are tested. With "head", any loader
            with a known number of batches.
        injection: "rows": canary rows in the data set, made by `with_canary_rows`, whose gradients are
            replaced. "sum": added to the clipped sum, drawn by the audit with Poisson sampling; the data set
            is not changed, and ghost clipping works. "head": an embedding for canaries, made by
            `with_canary_head`.
        canaries: A number of Dirac canaries, or a design such as `Dense`.
        per_coordinate: The number of Dirac canaries per weight.
        rng: A seed for the hidden bits and the places of the canaries.
        noise_multiplier: The stated noise multiplier, if it differs from the optimizer's.
        state: The `state_dict()` of an interrupted audit, to continue it.
        on_error: The action if training cannot be audited any further. "warn": a warning; training continues,
            and the report says which part was not seen. "raise": an error.
        begun: Whether iteration over the data loader has already begun; that pass is not seen.
        sampling: The claimed sampling, whatever the loader does: "poisson", "shuffled", "fixed-size", or a
            `Sampling` with a number of batches per step. Schemes other than "poisson" need
            `injection="head"`, which does not subtract real rows.
        model: The private model. With it, the audit names parameters and watches weights that the private
            optimizer does not train. With ghost clipping, the model clips: the noise is then compared with
            the model's clip norm if that is larger than the optimizer's. Without the model, ghost clipping is
            not tested, and the report says so.
        changes_weights: Whether the program changes weights or noisy gradients between steps, by functions of
            these alone: clamping, Lookahead, a max-norm. This leaks nothing, but an audit cannot tell it from
            training without noise. The report mentions it, and gives no upper end for ε.
        public_rows: The most generated or public rows that the program adds to a batch that was drawn.

    Raises:
        InputError: If training cannot be audited as it is; the message says what to change.

    Example:
        ```python
        model, optimizer, loader = engine.make_private(...)
        audit = attach(optimizer, loader, injection="sum", canaries=1000)
        ...  # train as always
        print(audit.report(claimed=engine.get_epsilon(1e-5), delta=1e-5))
        ```
    """
    if injection not in MAKERS:
        raise InputError(f"injection must be 'rows', 'sum' or 'head', got {shown(injection)}")
    if on_error not in ("warn", "raise"):
        raise InputError(f"on_error must be 'warn' or 'raise', got {shown(on_error)}")
    design = design_of(canaries, per_coordinate)
    claimed = sampling if isinstance(sampling, Sampling) else Sampling(sampling)
    require_private(optimizer, injection)
    require_sampling(data_loader, claimed, design, injection)
    if state is None:
        require_fresh(optimizer)
    require_fitting(optimizer, data_loader, design, injection)
    clippers = clippers_of(optimizer, [model])
    if model is not None and not clippers and clips_by_ghost(optimizer):
        raise InputError("model must be the one that make_private returned, which clips by ghost clipping")
    seed = int(seeds.generator(rng, _ATTACH).integers(2**62))
    if not claimed.is_poisson:
        claimed = replace(claimed, batches=batches_of(data_loader))
    given = Given(
        optimizer=optimizer,
        loader=data_loader,
        design=design,
        injection=injection,
        sampling=claimed,
        clippers=clippers,
        model=model,
        noise_multiplier=noise_multiplier and checks.nonnegative("noise_multiplier", noise_multiplier),
        on_error=on_error,
        begun=begun,
        changes_weights=changes_weights,
        public_rows=checks.integer("public_rows", public_rows, 0),
    )
    audit = Audit(given, _agreed(optimizer, seed))
    if state is not None:
        try:
            audit.load_state_dict(state)
        except Exception:
            # Otherwise the optimizer keeps the hooks of an audit that was never returned.
            audit.detach()
            raise
    return audit


def _agreed(optimizer: DPOptimizer, seed: int) -> int:
    """The seed of the first rank, which all ranks use."""
    if not is_together(optimizer):
        return seed
    shared = torch.tensor([seed], dtype=torch.int64, device=optimizer.params[0].device)
    torch.distributed.broadcast(shared, 0)
    return int(shared.item())
