"""A canary embedding beside a model: canary rows have one-hot gradients without any patching."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from canaria._core import checks
from canaria._core.errors import InputError, shown
from canaria.integrations.opacus._rows import WithCanaries
from canaria.training.canaries.designs import HEAD_PARAMETERS, Design, design_of, raw_norm

_FLOAT_MARK: Final = -12288.0
_INTEGER_MARK: Final = -7
_BASE: Final = 256
_DIGITS: Final = 3
CANARY: Final = "canary"
"""In rows that are mappings, the key for the number of the canary; -1 for real rows."""
_NAME: Final = "canaria_canaries"


class MarkedRows(WithCanaries):
    """Canary rows that are marked with their number: in their first tensor, or by a key in mappings.

    Args:
        dataset: The data set.
        count: The number of canary rows.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from canaria.integrations.opacus import MarkedRows
        >>> len(MarkedRows(TensorDataset(torch.zeros(100, 8)), count=20))
        120
    """

    def marked(self, item: Any, canary: int, index: int) -> Any:
        """The item, marked with the number of its canary if it is one."""
        if isinstance(item, Mapping):
            if CANARY in item:
                raise InputError(f"rows must not have {CANARY!r}, the key that marks canaries")
            return {**item, CANARY: max(canary, -1)}
        first = item if isinstance(item, Tensor) else item[0] if isinstance(item, tuple | list) else None
        if not isinstance(first, Tensor):
            raise InputError(
                f"rows must be tensors, tuples that begin with one, or mappings, got {type(item).__name__}; "
                "use injection='rows' or 'sum'"
            )
        if canary < 0:
            if first.numel() and first.reshape(-1)[0] == _mark_of(first):
                raise InputError(
                    f"row {self.rows[index]} begins with {_mark_of(first)}, which marks a canary; use 'rows' "
                    "or 'sum'"
                )
            return item
        marked = _marked(first, canary)
        if isinstance(item, Tensor):
            return marked
        rest = (marked, *item[1:])
        return type(item)(*rest) if hasattr(item, "_fields") else type(item)(rest)


def _mark_of(like: Tensor) -> float | int:
    return _FLOAT_MARK if like.is_floating_point() else _INTEGER_MARK


def _marked(like: Tensor, canary: int) -> Tensor:
    if like.numel() <= _DIGITS or not (like.is_floating_point() or like.dtype in (torch.int32, torch.int64)):
        raise InputError(
            f"a canary is marked in its first {_DIGITS + 1} numbers, floating or signed integers; "
            f"got {like.numel()} of {like.dtype}: use injection='rows' or 'sum'"
        )
    row = torch.zeros_like(like, memory_format=torch.contiguous_format)
    flat = row.view(-1)
    flat[0] = _mark_of(like)
    for digit in range(_DIGITS):
        flat[1 + digit] = canary // _BASE**digit % _BASE
    return row


class _Pull(torch.autograd.Function):
    """Makes canary rows answer 0, and gives their loss a gradient in the embedding alone.

    The gradient is the norm of the loss gradient. The norm is positively homogeneous, so that reweighted
    losses (ghost clipping) and averages affect it like any other gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, answers: Tensor, embedded: Tensor, included: Tensor, canary: Tensor, scale: "_Scale"
    ) -> Tensor:
        ctx.save_for_backward(included, canary)
        ctx.scale = scale
        return answers.masked_fill(_like(canary, answers), 0.0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        included, canary = ctx.saved_tensors
        norms = (grad.flatten(1) if grad.dim() > 1 else grad[:, None]).norm(dim=1).float()
        sizes = norms * included * ctx.scale.of(norms, canary) / HEAD_PARAMETERS**0.5
        # Equal in both parameters: clipped apart, each would keep a whole clip norm.
        pulls = sizes[:, None].expand(-1, HEAD_PARAMETERS).to(grad.dtype)
        return grad.masked_fill(_like(canary, grad), 0.0), pulls, None, None, None


class _Scale:
    """The factor for the norms of loss gradients that ensures that canaries are clipped.

    A loss averaged over T tokens has a gradient of about 1 / sqrt(T). The factor raises the smallest norm in
    the first batch with canaries, included or not, to `strength`, which is `RAW_NORM` clip norms. Ghost
    clipping goes back `twice`, and only the first time with the original losses. `weakest` is the smallest
    norm of a canary row before clipping, in clip norms of its step; infinite if there was none.
    """

    def __init__(self) -> None:
        self.strength = 0.0
        self.averaged = True
        self.twice = False
        self._calls = 0
        self._unit: Tensor | None = None
        self._least: Tensor | None = None
        self._weakest: Tensor | float = torch.inf

    def of(self, norms: Tensor, canary: Tensor) -> Tensor | float:
        """The factor for a batch with these norms. Averaged losses are scaled back later."""
        self._calls += 1
        if self.strength == 0:
            return 0.0
        if self.twice and self._calls % 2 == 0:
            return 0.0 if self._unit is None else self.strength / self._unit.to(norms)
        own = norms * (len(norms) if self.averaged else 1)
        least = own.masked_fill(~canary, torch.inf).amin() if len(own) else own.new_tensor(torch.inf)
        if self._unit is None:
            if not torch.isfinite(least):
                return 0.0
            positive = own[canary & (own > 0)]
            if len(positive) == 0:
                self._least = own.new_zeros(())
                return 0.0
            self._unit = positive.amin()
        factor = self.strength / self._unit.to(least)
        self._least = least * factor if self._least is None else torch.minimum(self._least, least * factor)
        return factor

    def end_step(self, clip_norm: float) -> None:
        """End a step with this clip norm; the next one is expected to use the same."""
        if self._least is not None:
            self._weakest = (self._least / clip_norm).clamp(max=self._weakest)
        self._least, self.strength = None, raw_norm(clip_norm)

    @property
    def weakest(self) -> float:
        return float(self._weakest)

    def state(self) -> dict[str, Any]:
        """The state to save in a checkpoint."""
        return {"unit": None if self._unit is None else float(self._unit), "weakest": self.weakest}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._unit = None if state["unit"] is None else torch.tensor(state["unit"])
        self._weakest = state["weakest"]


def _like(mask: Tensor, other: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (other.dim() - 1))


class CanaryEmbedding(nn.Module):
    """An embedding in which only canary rows have gradients, in two parameters; see `with_canary_head`."""

    included: Tensor
    _taking: Tensor

    def __init__(self, design: Design, like: Tensor) -> None:
        super().__init__()
        self.design = design
        self.parts = nn.ModuleList(
            nn.Embedding(design.coordinates, 1, dtype=like.dtype, device=like.device)
            for _ in range(HEAD_PARAMETERS)
        )
        for own in self.parts.parameters():
            nn.init.zeros_(own)
            own.canary_head = self  # type: ignore[attr-defined]
        self.scale = _Scale()
        self.register_buffer("included", torch.zeros(design.count, device=like.device), persistent=False)
        counts = torch.zeros(design.coordinates, device=like.device)
        self.register_buffer("_taking", counts, persistent=False)

    def taken(self) -> Tensor:
        """The number of participations of included canaries on each coordinate since the last call."""
        taking = self._taking.clone()
        self._taking.zero_()
        return taking

    def forward(self, answers: Tensor, which: Tensor) -> Tensor:
        """The answers, with 0 for canary rows. `which` is each row's canary, -1 for real rows."""
        # Real rows look up some canary, and their part is multiplied by 0.
        canary, which = which >= 0, which.clamp(min=0)
        included = self.included[which] * canary
        places = which % self.design.coordinates
        # A forward pass without gradients, such as an evaluation, is part of no step.
        if torch.is_grad_enabled():
            self._taking.index_add_(0, places, included.to(self._taking.dtype))
        embedded = torch.cat([own(places[:, None])[:, 0] for own in self.parts], dim=1)
        pulled: Tensor = _Pull.apply(answers, embedded, included, canary, self.scale)  # type: ignore[no-untyped-call]
        return pulled


class CanaryHead(nn.Module):
    """A model with a canary embedding. Real rows pass through the model unchanged.

    The model must receive the first tensor of a row unchanged, and return one tensor with an entry for each
    row. An excluded canary contributes nothing. The audited model is `model`.

    Args:
        model: The model.
        canaries: The number of canaries.
        per_coordinate: The number of canaries per coordinate of the embedding.

    Example:
        >>> import torch
        >>> from canaria.integrations.opacus import CanaryHead
        >>> head = CanaryHead(torch.nn.Linear(3, 2), canaries=5)
        >>> tuple(head.model.weight.shape)
        (2, 3)
    """

    def __init__(self, model: nn.Module, canaries: int, per_coordinate: int = 1) -> None:
        super().__init__()
        self.model, self.canaries = model, _embedding(model, canaries, per_coordinate)

    def forward(self, rows: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The model's answers, with 0 for canary rows."""
        # A batch without rows does not say how long a row would be.
        flat = rows.reshape(len(rows), -1) if len(rows) else rows.new_zeros(0, _DIGITS + 1)
        canary = flat[:, 0] == _mark_of(rows)
        digits = flat[:, 1 : 1 + _DIGITS].masked_fill(~canary[:, None], 0).long()
        which = (digits * torch.tensor([_BASE**k for k in range(_DIGITS)], device=rows.device)).sum(1)
        # Marks lie far outside of data. What overflows in the model cannot be masked afterwards.
        answers = self.model(rows.masked_fill(_like(canary, rows), 0), *args, **kwargs)
        pulled: Tensor = self.canaries(answers, which.masked_fill(~canary, -1))
        return pulled


class _InsideModel:
    """Canaries for a model that takes mappings and computes its loss itself.

    The model gets an embedding and is otherwise unchanged. The input of its last layer is set to 0 for canary
    rows, so no weight of the model has a gradient from them. Their gradient goes to the embedding instead.
    """

    def __init__(self, model: nn.Module, last: nn.Module, canaries: CanaryEmbedding) -> None:
        bias = getattr(last, "bias", None)
        if isinstance(bias, nn.Parameter) and bias.requires_grad:
            raise InputError(
                "the last layer must have no bias that is trained: canary rows would have a gradient there; "
                "use injection='rows' or 'sum'"
            )
        if hasattr(model, _NAME):
            raise InputError("the model has a canary embedding already; begin with a fresh model")
        self._canaries, self._which = canaries, None
        model.add_module(_NAME, canaries)
        model.register_forward_pre_hook(self._take, with_kwargs=True)
        model.register_forward_hook(self._forget, always_call=True)
        last.register_forward_pre_hook(self._pull)

    def _take(
        self, model: nn.Module, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[object, ...], dict[str, Any]]:
        rest = dict(kwargs)
        self._which = rest.pop(CANARY, None)
        if self._which is None and model.training and torch.is_grad_enabled():
            raise InputError(
                f"the model must get {CANARY!r} of every batch, by model(**batch); with Hugging Face's "
                "Trainer, set TrainingArguments(remove_unused_columns=False)"
            )
        return args, rest

    def _forget(self, *_: object) -> None:
        self._which = None

    def _pull(self, _: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if self._which is None:
            return None
        if len(args[0]) != len(self._which):
            raise InputError(
                f"the last layer must get {len(self._which)} rows, as many as the model, got {len(args[0])}"
            )
        return self._canaries(args[0], self._which), *args[1:]


def _embedding(model: nn.Module, canaries: int, per_coordinate: int) -> CanaryEmbedding:
    like = next(model.parameters(), None)
    if like is None:
        raise InputError("model must have parameters to train, got none")
    return CanaryEmbedding(design_of(canaries, per_coordinate), like)


def _last_layer(model: nn.Module, name: str | None) -> nn.Module:
    """The layer with this name, or by default the output embeddings of a Hugging Face model."""
    if name is not None:
        try:
            return model.get_submodule(name)
        except AttributeError:
            raise InputError(f"last_layer must name a layer of the model, got {shown(name)}") from None
    asked = getattr(model, "get_output_embeddings", None)
    found = asked() if callable(asked) else None
    if not isinstance(found, nn.Module):
        raise InputError(
            "rows are mappings, and the model does not say which of its layers gives the logits: name it by "
            "last_layer, such as 'score'"
        )
    return found


def with_canary_head(
    model: nn.Module, dataset: Any, canaries: int, per_coordinate: int = 1, *, last_layer: str | None = None
) -> tuple[nn.Module, MarkedRows]:
    """Add canaries to a model and a data set, for `attach(..., injection="head")`; make both private.

    If rows are tensors, or tuples that begin with one, the model is wrapped in a `CanaryHead`. If rows are
    mappings, as for Hugging Face models, which compute their loss themselves, the model gets an embedding for
    canaries, and its rows a key `"canary"`, which must be passed to it with the rest of a batch.

    Args:
        model: The model.
        dataset: The data set.
        canaries: The number of canaries.
        per_coordinate: The number of canaries per coordinate of the embedding.
        last_layer: If rows are mappings, the name of the layer that computes the logits. It must not train a
            bias, and nothing may be trained after it or beside it. By default the model's output
            embeddings.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from canaria.integrations.opacus import with_canary_head
        >>> data = TensorDataset(torch.zeros(100, 8), torch.zeros(100))
        >>> model, rows = with_canary_head(torch.nn.Linear(8, 2), data, canaries=20)
        >>> type(model).__name__, len(rows)
        ('CanaryHead', 120)
    """
    checks.integer("canaries", canaries, 1, _BASE**_DIGITS)
    rows = MarkedRows(dataset, canaries)
    # The last canary is where the largest number is. Making its row shows whether rows can be marked.
    canary = rows[int(np.argmax(rows.rows))]
    if not isinstance(canary, Mapping):
        return CanaryHead(model, canaries, per_coordinate), rows
    last = _last_layer(model, last_layer)
    _InsideModel(model, last, _embedding(model, canaries, per_coordinate))
    return model, rows
