"""All uses of undocumented parts of samplers and data loaders of Opacus and torch; see `_internals.py`."""

import copyreg
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
)

from canaria._core.arrays import Integers

PoissonSampler: TypeAlias = UniformWithReplacementSampler
Loader: TypeAlias = DataLoader[Any]
Undo = Callable[[], None]
OnBatch = Callable[[list[int] | None], None]
"""Called with the rows of each batch of a pass, and with None at its end."""


def samples_by_poisson(data_loader: Loader) -> bool:
    """Whether each row is drawn by an independent coin, as in Opacus' samplers."""
    sampler = getattr(data_loader, "batch_sampler", None)
    return isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler)


def shuffles(data_loader: Loader) -> bool:
    """Whether batches are cut from an order of the rows, as by torch's own sampler, and so not by coins."""
    sampler = sampler_of(data_loader)
    return isinstance(sampler, BatchSampler) and type(sampler).__iter__ is BatchSampler.__iter__


def sampler_of(data_loader: Loader) -> Any:
    """The sampler whose draws are tested: that of batches, or one inside it that draws groups of rows.

    A sampler of authors, as in dp-transformers, takes one row of each author that another sampler drew. The
    unit that takes part is the author, so the stated draws are those of authors.
    """
    sampler = data_loader.batch_sampler
    rows = _number(sampler, len(data_loader.dataset))  # type: ignore[arg-type]
    inner = _inner(sampler)
    return sampler if inner is None or _number(inner, rows) == rows else inner


def _inner(sampler: Any) -> Any:
    """A batch sampler inside another one, from which that makes its batches; None if there is none."""
    held = () if isinstance(sampler, BatchSampler) else vars(sampler).values()
    inner = (one for one in held if isinstance(one, Sampler))
    return next((one for one in inner if isinstance(one, BatchSampler) or hasattr(one, "sample_rate")), None)


def _number(sampler: Any, otherwise: int) -> int:
    """The number of rows that a sampler draws from, as stated by it or by the sampler inside it."""
    told = getattr(sampler, "total_size", getattr(sampler, "num_samples", None))
    if isinstance(told, int):
        return told
    drawn_from: Any = getattr(sampler, "sampler", None)
    return len(drawn_from) if hasattr(drawn_from, "__len__") else otherwise


def sampled_rows(data_loader: Loader) -> int:
    """The number of rows that the sampler draws from, over all processes."""
    return _number(sampler_of(data_loader), len(data_loader.dataset))  # type: ignore[arg-type]


def copies_of_rows(dataset: object) -> int:
    """The largest number of times that a data set lists one row, as far as torch's own classes show."""
    if not isinstance(dataset, Subset | ConcatDataset):
        return 1
    listed = _listed(dataset)
    return int(np.unique(listed, axis=0, return_counts=True)[1].max(initial=1))


def _listed(dataset: Dataset[Any]) -> Integers:
    """For each row, the data set that it comes from, and its number there."""
    if isinstance(dataset, Subset):
        chosen: Integers = _listed(dataset.dataset)[np.asarray(dataset.indices)]
        return chosen
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_listed(part) for part in dataset.datasets])
    rows = len(dataset)  # type: ignore[arg-type]
    return np.column_stack([np.full(rows, id(dataset)), np.arange(rows)])


def rows_of_process(data_loader: Loader) -> int:
    """The number of rows that the sampler of this process draws from."""
    by_poisson = samples_by_poisson(data_loader)
    return int(sampler_of(data_loader).num_samples) if by_poisson else sampled_rows(data_loader)


def shares_rows(data_loader: Loader) -> bool:
    """Whether other processes have samplers for the other rows."""
    return isinstance(data_loader.batch_sampler, DistributedUniformWithReplacementSampler)


def rows_here(sampler: Any, epoch: int) -> Integers:
    """The rows that a distributed Poisson sampler draws from in this process, in the order of its coins.

    It follows the sampler's `__iter__`, which divides the rows anew for each epoch.
    """
    order = torch.arange(sampler.total_size)
    if sampler.shuffle:
        seeded = torch.Generator().manual_seed(sampler.shuffle_seed + epoch)
        order = torch.randperm(sampler.total_size, generator=seeded)
    own: Integers = order[sampler.rank :: sampler.num_replicas].numpy()
    return own


def pool_of(data_loader: Loader) -> Integers | None:
    """The rows that this process draws from in its first epoch; None for unknown sampler classes."""
    sampler: Any = data_loader.batch_sampler
    if type(sampler) is DistributedUniformWithReplacementSampler:
        return rows_here(sampler, 0)
    if type(sampler) is UniformWithReplacementSampler:
        return np.arange(sampler.num_samples)
    whole = type(getattr(sampler, "sampler", None)) in (RandomSampler, SequentialSampler)
    return np.arange(len(data_loader.dataset)) if whole else None  # type: ignore[arg-type]


def rate_of(data_loader: Loader) -> float:
    """The probability that a row is in a batch, as stated by its sampler or from the batch size."""
    sampler: Any = data_loader.batch_sampler
    inner = sampler if hasattr(sampler, "sample_rate") else _inner(sampler) or sampler
    if hasattr(inner, "sample_rate"):
        return float(inner.sample_rate)
    size = getattr(inner, "batch_size", None)
    return 1 / len(sampler) if size is None else min(1.0, size / sampled_rows(data_loader))


def batches_of(data_loader: Loader) -> int:
    """The number of batches in a pass."""
    return len(data_loader.batch_sampler)  # type: ignore[arg-type]


def record_draws(sampler: Any, on_pass: Callable[[], OnBatch]) -> Undo:
    """Call `on_pass` when the sampler starts anew, and call its result with each batch that is drawn.

    The sampler's class is replaced, because loaders check its type and call `__iter__` on it. Copies and
    pickled samplers are not recorded.
    """
    kind = type(sampler)

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[Any]:
            record = on_pass()
            for batch in kind.__iter__(self):  # the callback may have changed the class again
                record(batch.tolist() if isinstance(batch, Tensor) else list(batch))
                yield batch
            record(None)

        def __reduce__(self) -> Any:
            return copyreg.__newobj__, (kind,), self.__dict__  # type: ignore[attr-defined]

    sampler.__class__ = Recorded
    return lambda: setattr(sampler, "__class__", kind)


def rows_of(sampler: PoissonSampler) -> int:
    """The number of rows that a sampler draws from."""
    return int(sampler.num_samples)
