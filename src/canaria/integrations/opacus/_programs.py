"""Patches that follow a program of training from outside: what it makes, draws and releases.

They are of classes, because the program makes its own optimizers, loaders and samplers, and are undone at the
end of a `with` block.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple, Protocol

import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import Tensor
from torch.utils.data import DataLoader

from canaria.integrations.opacus._internals import ADD_NOISE, GhostClipper
from canaria.integrations.opacus._samplers import PoissonSampler, shuffles

_BEING_MADE: Final = "canaria_is_being_made"
_DROPOUTS: Final = (
    *("dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("alpha_dropout", "feature_alpha_dropout"),
)
"""The functions of torch that drop values out."""


class Promise(NamedTuple):
    """What an engine was asked to keep, by `make_private_with_epsilon`."""

    epsilon: float
    delta: float


class Noticed(Protocol):
    """What is told of private optimizers and data loaders."""

    def begin_engine(self, promise: Promise | None, given: DataLoader[Any]) -> None:
        """An engine makes things private, a data loader among them, asked to keep the promise.

        What it makes belongs together.
        """

    def end_engine(self, made: tuple[object, ...]) -> None:
        """The engine has made them, or failed and made nothing."""

    def made_optimizer(self, optimizer: DPOptimizer) -> None:
        """A private optimizer was made."""

    def made_loader(self, loader: DataLoader[Any]) -> None:
        """A data loader was made that may draw by coins: a private one, or one with a sampler of its own."""

    def made_clipper(self, clipper: GhostClipper) -> None:
        """What clips by ghost was made."""

    def before_step(self, optimizer: DPOptimizer) -> None:
        """A private optimizer is about to make a step."""


@contextmanager
def noticing(noticed: Noticed) -> Iterator[None]:
    """Tell of every private optimizer and data loader when it is made, by an engine or by hand, and of steps.

    Constructors and steps are patched; of classes that call each other's, the outermost tells.
    """

    def making(own: Callable[..., Any], promise_of: Callable[..., Promise | None]) -> Callable[..., Any]:
        def make(engine: PrivacyEngine, **how: Any) -> Any:
            noticed.begin_engine(promise_of(how), how["data_loader"])
            made: tuple[object, ...] = ()
            try:
                made = own(engine, **how)
                return made
            finally:
                noticed.end_engine(made)

        return make

    def promise(how: dict[str, Any]) -> Promise:
        return Promise(float(how["target_epsilon"]), float(how["target_delta"]))

    mark = f"{_BEING_MADE}_{id(noticed)}"
    with ExitStack() as patches:
        for name, promise_of in (("make_private", lambda _: None), ("make_private_with_epsilon", promise)):
            own = vars(PrivacyEngine)[name]
            patches.enter_context(_patched(PrivacyEngine, name, making(own, promise_of)))
        for kind in dict.fromkeys(_optimizers(DPOptimizer)):
            if "__init__" in vars(kind):
                telling = _telling(kind.__init__, noticed.made_optimizer, mark)
                patches.enter_context(_patched(kind, "__init__", telling))
            if "step" in vars(kind):
                patches.enter_context(_patched(kind, "step", _announced(kind.step, noticed.before_step)))
        for kind, tell in (
            (DPDataLoader, noticed.made_loader),
            (DataLoader, lambda loader: None if _is_plain(loader) else noticed.made_loader(loader)),
            (GhostClipper, noticed.made_clipper),
        ):
            patches.enter_context(_patched(kind, "__init__", _telling(kind.__init__, tell, mark)))
        yield


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Whether a loader has no sampler of batches but torch's own."""
    return loader.batch_sampler is None or shuffles(loader)


def _announced(own: Callable[..., Any], tell: Callable[[Any], None]) -> Callable[..., Any]:
    """A method that tells before it does anything."""

    @functools.wraps(own)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        tell(self)
        return own(self, *args, **kwargs)

    return told


def _telling(own: Callable[..., None], tell: Callable[[Any], None], mark: str) -> Callable[..., None]:
    """A constructor that tells of what it has made, unless it was called by that of a subclass.

    `mark` is the attribute by which it knows that.
    """

    @functools.wraps(own)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        outermost = mark not in vars(self)  # asking a model that is half made for an attribute never ends
        object.__setattr__(self, mark, True)
        own(self, *args, **kwargs)
        if outermost:
            object.__delattr__(self, mark)
            tell(self)

    return made


class Replayed(Protocol):
    """What follows a program of training while it runs, and decides what it draws and releases.

    Where it is `short`, passes have one batch: a program that decides after a pass does so after one step.
    """

    short: bool

    def batches(self, sampler: PoissonSampler) -> Iterator[list[int]]:
        """The rows of the batches of one pass."""

    def before_noise(self, optimizer: DPOptimizer) -> None:
        """The clipped sum of a step is complete."""

    def after_noise(self, optimizer: DPOptimizer) -> None:
        """Noise was added to it."""

    def after_scaling(self, optimizer: DPOptimizer) -> None:
        """And it was divided; the wrapped optimizer will use it now."""


@contextmanager
def replaying(replay: Replayed) -> Iterator[None]:
    """Let `replay` decide what Poisson samplers draw, and see every step of private optimizers.

    Classes are patched, because the program makes its own samplers and optimizers. Loaders do not fetch
    ahead, so that a step is made of the batches that were drawn since the last one; dropout is switched off,
    because a batch with a row less would have other masks for all rows.
    """

    def iterate(sampler: PoissonSampler) -> Iterator[list[int]]:
        return replay.batches(sampler)

    own_scale, own_fetch = DPOptimizer.scale_grad, DataLoader.__iter__

    def scale(optimizer: DPOptimizer) -> None:
        own_scale(optimizer)
        replay.after_scaling(optimizer)

    def fetch(loader: DataLoader[Any]) -> Iterator[Any]:
        return own_fetch(_without_workers(loader))

    with ExitStack() as patches:
        patches.enter_context(_patched(PoissonSampler, "__iter__", iterate))
        if replay.short:
            patches.enter_context(_patched(PoissonSampler, "__len__", lambda _: 1))
        patches.enter_context(_patched(DPOptimizer, "scale_grad", scale))
        patches.enter_context(_patched(DataLoader, "__iter__", fetch))
        for kind in _optimizers(DPOptimizer):
            if ADD_NOISE in vars(kind) and kind.__module__.startswith("opacus."):
                followed = _followed(replay, vars(kind)[ADD_NOISE])
                patches.enter_context(_patched(kind, ADD_NOISE, followed))
        patches.enter_context(without_dropout())
        yield


@contextmanager
def without_dropout() -> Iterator[None]:
    """Switch dropout off, wherever it is called by torch's functions."""
    with ExitStack() as patches:
        for name in _DROPOUTS:
            patches.enter_context(_patched(torch.nn.functional, name, _kept))
        yield


@contextmanager
def _patched(owner: object, name: str, new: Callable[..., object]) -> Iterator[None]:
    old = vars(owner)[name]
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def _optimizers(kind: type[DPOptimizer]) -> Iterator[type[DPOptimizer]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _optimizers(derived)


def _followed(replay: Replayed, own: Callable[[DPOptimizer], None]) -> Callable[[DPOptimizer], None]:
    def add_noise(optimizer: DPOptimizer) -> None:
        replay.before_noise(optimizer)
        own(optimizer)
        replay.after_noise(optimizer)

    return add_noise


def _kept(input: Tensor, *_: object, **__: object) -> Tensor:  # noqa: A002
    """Dropout that drops nothing, by the signature of torch."""
    return input


def _without_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A loader that fetches batches in this process, when they are asked for."""
    if not loader.num_workers:
        return loader
    twin = copy.copy(loader)
    vars(twin).update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
    return twin
