"""Checks of a training script before an audit is attached. Each error is one line."""

from dataclasses import replace
from typing import Any

from opacus.optimizers import DPOptimizer

from canaria._core.errors import InputError
from canaria.integrations.opacus import _internals
from canaria.integrations.opacus._accountants import accountant_of, steps_counted
from canaria.integrations.opacus._injections import layers_with_room
from canaria.integrations.opacus._places import FINE
from canaria.integrations.opacus._rows import WithCanaries
from canaria.integrations.opacus._samplers import Loader, sampled_rows, samples_by_poisson, shuffles
from canaria.training.canaries.designs import Dense, Design
from canaria.training.canaries.sampling import Sampling


def require_flat(optimizer: DPOptimizer) -> None:
    if not isinstance(optimizer, DPOptimizer):
        raise InputError(
            f"optimizer must be the private one that make_private returns, got {type(optimizer).__name__}"
        )
    if not _internals.clips_flat(optimizer):
        raise InputError(f"optimizer must clip flat, to one fixed norm, got {type(optimizer).__name__}")


def require_private(optimizer: DPOptimizer, injection: str) -> None:
    adaptive = isinstance(optimizer, DPOptimizer) and _internals.clips_adaptively(optimizer)
    if adaptive and injection != "sum" and not _internals.clips_by_ghost(optimizer):
        raise InputError(
            f"{type(optimizer).__name__} sets its norm by how many rows it clips, and canary rows would "
            f"count among them; use injection='sum', not {injection!r}"
        )
    if not isinstance(optimizer, DPOptimizer) or not (adaptive or _internals.layer_norms(optimizer)):
        require_flat(optimizer)
    if _internals.is_sharded(optimizer) and not all(map(_internals.is_sharded_by_rows, optimizer.params)):
        raise InputError(
            "parameters must be sharded over all processes by their first axis, as FSDP2Wrapper does by "
            "default"
        )
    if hasattr(optimizer, "canaria_audit"):
        raise InputError(
            "optimizer is audited already: detach that audit first, or, if the program attaches one itself, "
            "run it as it is, not by audit-program"
        )


def require_sampling(data_loader: Loader, sampling: Sampling, design: Design, injection: str) -> None:
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    if not (hasattr(sampler, "__dict__") and hasattr(sampler, "__len__") and len(sampler) > 0):
        raise InputError(
            "data_loader must have a batch sampler of a class in Python, such as a torch Sampler, whose "
            f"number of batches is known, got {type(sampler).__name__}"
        )
    if injection == "head":
        # For its check alone: a pass must be a whole number of steps.
        replace(sampling, batches=len(sampler))
        shared = isinstance(design, Dense) or design.most > 1
        if sampling.kind == "shuffled" and shared:
            raise InputError("shuffled batches go with one canary per coordinate; leave out per_coordinate")
        return
    if not sampling.is_poisson:
        raise InputError(
            f"sampling={sampling.words!r} goes with injection='head'; {injection!r} subtracts the real rows, "
            "which would show who took part"
        )
    if samples_by_poisson(data_loader):
        return
    if injection == "rows" or shuffles(data_loader):
        # Canaries of "sum" are drawn by the audit itself. Those of "rows" are drawn by the sampler. If that
        # were not Poisson, the other rows would show when canaries take part: the bound would be too high,
        # and a test that fails afterwards does not lower it.
        raise InputError(
            "data_loader must sample by Poisson, as make_private(poisson_sampling=True) makes it, got "
            f"{type(sampler).__name__}; other batches can be audited with injection='head', where no real "
            "rows are subtracted" + ", and samplers of your own also with 'sum'" * (injection == "rows")
        )


def _has_stepped(optimizer: DPOptimizer) -> bool:
    """Whether the optimizer has made a step. Some, such as Adagrad, have a state of step 0 at first."""
    # Reading the state of a parameter leaves an empty one.
    return any(float(one.get("step", 1)) > 0 for one in optimizer.state.values() if one)


def require_fresh(optimizer: DPOptimizer) -> None:
    accountant = accountant_of(optimizer)
    # Without an accountant, only gradients show a step. With one, they may be left from public pre-training.
    stepped = accountant is None and any(p.grad is not None for p in optimizer.params)
    if _has_stepped(optimizer) or stepped:
        raise InputError("attach before training begins: this optimizer has made steps that no canary was in")
    if accountant is not None and (counted := steps_counted(accountant)):
        raise InputError(
            f"attach before training begins: the engine's accountant has counted {counted} steps that no "
            "canary was in, and claims are about all of them"
        )


def require_counted(optimizer: DPOptimizer, steps: int) -> None:
    accountant = accountant_of(optimizer)
    counted = steps if accountant is None else steps_counted(accountant)
    if counted != steps:
        raise InputError(
            f"the accountant has counted {counted} steps, the audit {steps}: load its state too, "
            "so that claim and bound are about the same run"
        )


def require_unused(optimizer: DPOptimizer) -> None:
    """Refuse an optimizer that has made steps before the first one that is seen."""
    if _has_stepped(optimizer):
        raise InputError(
            "the optimizer was resumed after the audit was attached: resume before, or give attach the "
            "audit's own state too"
        )


def require_fitting(optimizer: DPOptimizer, data_loader: Loader, design: Design, injection: str) -> None:
    _require_room(optimizer, design)
    if len({p.device for p in optimizer.params}) > 1:
        raise InputError("the model is spread over several devices, which cannot be audited; use one, or DDP")
    _require_readable(optimizer, injection)
    if injection != "sum":
        _require_canary_rows(optimizer, data_loader, design, injection)


def most_coordinates(optimizer: DPOptimizer) -> int:
    """The largest possible number of coordinates: all weights, or those of one layer if clipped per layer."""
    sizes = [p.numel() for p in optimizer.params]
    return max(sizes) if _internals.layer_norms(optimizer) else sum(sizes)


def _require_room(optimizer: DPOptimizer, design: Design) -> None:
    sizes, each = [p.numel() for p in optimizer.params], getattr(design, "per_coordinate", 1)
    if _internals.layer_norms(optimizer) and not layers_with_room(optimizer, design):
        raise InputError(
            f"canaries need {design.coordinates} coordinates, but if layers are clipped apart, each has a "
            f"weight in every layer, and the largest has {max(sizes)}; "
            f"take at most {max(sizes) * each} canaries"
        )
    weights = sum(sizes)
    if design.coordinates > weights:
        raise InputError(
            f"canaries need {design.coordinates} coordinates, but the model has {weights} weights; "
            f"take at most {weights * each} canaries, or more per coordinate"
        )


def _require_readable(optimizer: DPOptimizer, injection: str) -> None:
    """Refuse precisions or layouts in which the effect of canaries on the sums cannot be read."""
    rough = {p.dtype for p in optimizer.params} - {*FINE}
    if rough and (injection == "rows" or (injection == "sum" and _internals.is_together(optimizer))):
        raise InputError(
            f"injection={injection!r} compares clipped sums, which {rough.pop()} would round; keep weights "
            "in single precision (autocast is fine), or use 'head', or 'sum' in one process"
        )
    if _internals.is_sharded(optimizer) and injection != "sum":
        raise InputError(f"fully sharded training (FSDP) goes with injection='sum', not {injection!r}")
    if _internals.layer_norms(optimizer) and injection == "head":
        raise InputError(
            "injection='head' has canaries in only two layers, which shows little if layers are clipped "
            "apart; use 'sum' or 'rows'"
        )


def _require_canary_rows(optimizer: DPOptimizer, data_loader: Loader, design: Design, injection: str) -> None:
    rows = data_loader.dataset
    maker = (
        "with_canary_rows(dataset, canaries)"
        if injection == "rows"
        else "with_canary_head(model, dataset, canaries)"
    )
    if not isinstance(rows, WithCanaries) or rows.count != design.count:
        held = f"{rows.count} canary rows" if isinstance(rows, WithCanaries) else type(rows).__name__
        raise InputError(
            f"injection={injection!r} needs a data set that holds all {design.count} canaries whatever the "
            f"bits are, made by {maker}, got {held}; a length that depends on the bits would reveal them"
        )
    if sampled_rows(data_loader) != len(rows):
        raise InputError(f"data_loader must sample from all {len(rows)} rows of its data set")
    if injection == "rows" and _internals.clips_by_ghost(optimizer):
        raise InputError(
            "injection='rows' needs per-sample gradients, which ghost clipping does not compute; use "
            "'sum' or 'head'"
        )
    if injection == "head":
        _require_head(optimizer, design)


def _require_head(optimizer: DPOptimizer, design: Design) -> None:
    heads = list({p.canary_head: None for p in optimizer.params if hasattr(p, "canary_head")})
    if len(heads) != 1 or heads[0].design != design:
        held = (
            heads[0].design if heads else "none that is trained (adapters and freezing come before the head)"
        )
        raise InputError(f"injection='head' needs a model made by with_canary_head with {design}, got {held}")
