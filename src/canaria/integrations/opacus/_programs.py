"""Patches that follow a training program from outside: what it makes, draws and releases.

Classes are patched, because the program makes its own optimizers, loaders and samplers. The patches are
undone at the end of a `with` block.
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

from canaria.integrations.opacus._internals import ADD_NOISE
from canaria.integrations.opacus._samplers import PoissonSampler, shuffles
from canaria.integrations.opacus._versions import GhostClipper

_BEING_MADE: Final = "canaria_is_being_made"
_DROPOUTS: Final = (
    *("dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("alpha_dropout", "feature_alpha_dropout"),
)
"""The dropout functions of torch."""


class Promise(NamedTuple):
    """The arguments of `make_private_with_epsilon`."""

    epsilon: float
    delta: float


class Noticed(Protocol):
    """Callbacks for private optimizers and data loaders."""

    def begin_engine(self, promise: Promise | None, given: DataLoader[Any]) -> None:
        """An engine begins to make things private, given a data loader and possibly a promise.

        Everything that it makes until `end_engine` belongs together.
        """

    def end_engine(self, made: tuple[object, ...]) -> None:
        """The engine has finished; `made` is empty if it failed."""

    def made_optimizer(self, optimizer: DPOptimizer) -> None:
        """A private optimizer was made."""

    def made_loader(self, loader: DataLoader[Any]) -> None:
        """A loader that may draw by coins was made: a private one, or one with a custom sampler."""

    def made_clipper(self, clipper: GhostClipper) -> None:
        """A part that clips by ghost clipping was made."""

    def before_step(self, optimizer: DPOptimizer) -> None:
        """A private optimizer is about to make a step."""


@contextmanager
def noticing(noticed: Noticed) -> Iterator[None]:
    """Call `noticed` for each private optimizer and data loader that is made, and before each step.

    Constructors and steps are patched. If constructors call each other, only the outermost one reports.
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
        # A class that derives from two others is found twice, and must be patched once.
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
    """Whether a loader has only torch's own batch sampler."""
    return loader.batch_sampler is None or shuffles(loader)


def _announced(own: Callable[..., Any], tell: Callable[[Any], None]) -> Callable[..., Any]:
    """Wrap a method so that it calls `tell` first."""

    @functools.wraps(own)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        tell(self)
        return own(self, *args, **kwargs)

    return told


def _telling(own: Callable[..., None], tell: Callable[[Any], None], mark: str) -> Callable[..., None]:
    """Wrap a constructor so that it reports the new object, unless a subclass's constructor called it.

    `mark` is the attribute by which this is detected.
    """

    @functools.wraps(own)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        outermost = mark not in vars(self)  # getattr on a half-made model would recurse without end
        object.__setattr__(self, mark, True)
        own(self, *args, **kwargs)
        if outermost:
            object.__delattr__(self, mark)
            tell(self)

    return made


class Replayed(Protocol):
    """Follows a training program while it runs, and decides what it draws and releases.

    If `short`, passes have one batch: a program that decides after a pass then does so after one step.
    """

    short: bool

    def batches(self, sampler: PoissonSampler) -> Iterator[list[int]]:
        """The batches of one pass, as row numbers."""

    def before_noise(self, optimizer: DPOptimizer) -> None:
        """The clipped sum of a step is complete."""

    def after_noise(self, optimizer: DPOptimizer) -> None:
        """Noise was added to the clipped sum."""

    def after_scaling(self, optimizer: DPOptimizer) -> None:
        """The noisy sum was divided; the wrapped optimizer is about to use it."""


@contextmanager
def replaying(replay: Replayed) -> Iterator[None]:
    """Let `replay` decide what Poisson samplers draw, and follow each step of private optimizers.

    Classes are patched, because the program makes its own samplers and optimizers. Loaders do not prefetch,
    so that a step uses the batches drawn since the last one. Dropout is switched off, because a batch with
    one row less would have other masks for all rows.
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
    """Switch dropout off for all calls of torch's functions."""
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
    """Dropout that drops nothing, with the signature of torch's functions."""
    return input


def _without_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A loader that fetches batches on demand in this process."""
    if not loader.num_workers:
        return loader
    twin = copy.copy(loader)
    vars(twin).update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
    return twin
