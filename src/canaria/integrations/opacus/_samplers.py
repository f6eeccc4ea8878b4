"""Every touch of what Opacus and torch do not document of samplers and data loaders; see `_internals.py`."""

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
"""Gets the rows of every batch of a pass, and None at its end."""


def samples_by_poisson(data_loader: Loader) -> bool:
    """Whether every row is drawn by a coin of its own, as Opacus' samplers do."""
    sampler = getattr(data_loader, "batch_sampler", None)
    return isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler)


def shuffles(data_loader: Loader) -> bool:
    """Whether batches are cut from an order of the rows, as torch's own sampler does, so never by coins."""
    sampler = sampler_of(data_loader)
    return isinstance(sampler, BatchSampler) and type(sampler).__iter__ is BatchSampler.__iter__


def sampler_of(data_loader: Loader) -> Any:
    """The sampler whose draws are followed: that of batches, or the one in it that draws groups of rows.

    A sampler of authors, as in dp-transformers, takes one row of each author that another sampler drew. What
    it takes part by is the author, so it is the draws of authors that are stated.
    """
    sampler = data_loader.batch_sampler
    rows = _number(sampler, len(data_loader.dataset))  # type: ignore[arg-type]
    inner = _inner(sampler)
    return sampler if inner is None or _number(inner, rows) == rows else inner


def _inner(sampler: Any) -> Any:
    """A sampler of batches that another one holds, and makes its batches of; None if there is none."""
    held = () if isinstance(sampler, BatchSampler) else vars(sampler).values()
    inner = (one for one in held if isinstance(one, Sampler))
    return next((one for one in inner if isinstance(one, BatchSampler) or hasattr(one, "sample_rate")), None)


def _number(sampler: Any, otherwise: int) -> int:
    """From how many rows a sampler draws, as it says or as the one in it does."""
    told = getattr(sampler, "total_size", getattr(sampler, "num_samples", None))
    if isinstance(told, int):
        return told
    drawn_from: Any = getattr(sampler, "sampler", None)
    return len(drawn_from) if hasattr(drawn_from, "__len__") else otherwise


def sampled_rows(data_loader: Loader) -> int:
    """From how many rows the sampler draws, over all processes."""
    return _number(sampler_of(data_loader), len(data_loader.dataset))  # type: ignore[arg-type]


def copies_of_rows(dataset: object) -> int:
    """The most often that a data set lists one row, as far as torch's own data sets say."""
    if not isinstance(dataset, Subset | ConcatDataset):
        return 1
    listed = _listed(dataset)
    return int(np.unique(listed, axis=0, return_counts=True)[1].max(initial=1))


def _listed(dataset: Dataset[Any]) -> Integers:
    """For each row the data set that it is from, and its number there."""
    if isinstance(dataset, Subset):
        chosen: Integers = _listed(dataset.dataset)[np.asarray(dataset.indices)]
        return chosen
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_listed(part) for part in dataset.datasets])
    rows = len(dataset)  # type: ignore[arg-type]
    return np.column_stack([np.full(rows, id(dataset)), np.arange(rows)])


def rows_of_process(data_loader: Loader) -> int:
    """From how many rows the sampler of this process draws."""
    by_poisson = samples_by_poisson(data_loader)
    return int(sampler_of(data_loader).num_samples) if by_poisson else sampled_rows(data_loader)


def shares_rows(data_loader: Loader) -> bool:
    """Whether other processes have samplers for the other rows."""
    return isinstance(data_loader.batch_sampler, DistributedUniformWithReplacementSampler)


def rows_here(sampler: Any, epoch: int) -> Integers:
    """The rows that a distributed Poisson sampler draws from in this process, in the order of its coins.

    As its `__iter__` divides them, anew for each epoch.
    """
    order = torch.arange(sampler.total_size)
    if sampler.shuffle:
        seeded = torch.Generator().manual_seed(sampler.shuffle_seed + epoch)
        order = torch.randperm(sampler.total_size, generator=seeded)
    own: Integers = order[sampler.rank :: sampler.num_replicas].numpy()
    return own


def pool_of(data_loader: Loader) -> Integers | None:
    """The rows that this process draws from in its first epoch; None for samplers of other classes."""
    sampler: Any = data_loader.batch_sampler
    if type(sampler) is DistributedUniformWithReplacementSampler:
        return rows_here(sampler, 0)
    if type(sampler) is UniformWithReplacementSampler:
        return np.arange(sampler.num_samples)
    whole = type(getattr(sampler, "sampler", None)) in (RandomSampler, SequentialSampler)
    return np.arange(len(data_loader.dataset)) if whole else None  # type: ignore[arg-type]


def rate_of(data_loader: Loader) -> float:
    """The probability with which a row is in a batch, as its sampler says or by the size of a batch."""
    sampler: Any = data_loader.batch_sampler
    inner = sampler if hasattr(sampler, "sample_rate") else _inner(sampler) or sampler
    if hasattr(inner, "sample_rate"):
        return float(inner.sample_rate)
    size = getattr(inner, "batch_size", None)
    return 1 / len(sampler) if size is None else min(1.0, size / sampled_rows(data_loader))


def batches_of(data_loader: Loader) -> int:
    """How many batches a pass has."""
    return len(data_loader.batch_sampler)  # type: ignore[arg-type]


def record_draws(sampler: Any, on_pass: Callable[[], OnBatch]) -> Undo:
    """Call `on_pass` when the sampler begins anew, and what it returns with every batch it draws.

    The sampler gets a class of its own: loaders ask its type, and call `__iter__` on it. Copies of it, and
    what is pickled, are not recorded.
    """
    kind = type(sampler)

    class Recorded(kind):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[Any]:
            record = on_pass()
            for batch in kind.__iter__(self):  # what is told may have changed the class once more
                record(batch.tolist() if isinstance(batch, Tensor) else list(batch))
                yield batch
            record(None)

        def __reduce__(self) -> Any:
            return copyreg.__newobj__, (kind,), self.__dict__  # type: ignore[attr-defined]

    sampler.__class__ = Recorded
    return lambda: setattr(sampler, "__class__", kind)


def rows_of(sampler: PoissonSampler) -> int:
    """From how many rows a sampler draws."""
    return int(sampler.num_samples)
