"""Compares the samplers of processes that train together. No process can detect their faults alone."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from canaria._core import seeds
from canaria._core.arrays import Integers
from canaria.integrations.opacus._rows import WithCanaries
from canaria.integrations.opacus._samplers import pool_of, rate_of, rows_of_process, samples_by_poisson
from canaria.training.conformance import processes
from canaria.training.conformance.processes import Stretches
from canaria.training.findings import Findings

_READ: Final = 256
"""The number of rows, at most, that each process reads to detect shared data."""


ALIKE: Final = {
    "gradients": "each trains a model of its own, with less noise than stated",
    "weights": "something besides the private optimizer changes those of a rank",
    "clip norms": "the rows of a rank weigh more than the noise is made for",
    "noise multipliers": "the noise is not that of the accountant",
}
"""What all processes must have the same of in a step, and what it means if they do not."""


class Ranks:
    """Compares the samplers of all processes. Each process must make one, and call `tell` together.

    The pools of rows are compared at once. Draws are compared after 1, 2, 4, ... 64 steps: seven messages of
    half a kilobyte in a whole training.
    """

    def __init__(self, data_loader: Any, device: torch.device) -> None:
        self._device, self._told = device, 0
        self._rank, self._ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self._same_draws: tuple[str, ...] = ()
        self._parted = ""
        own, rate = rows_of_process(data_loader), rate_of(data_loader)
        length = processes.stretch_of(rate, own) if samples_by_poisson(data_loader) else 0
        pool = pool_of(data_loader)
        rows = len(data_loader.dataset) if hasattr(data_loader.dataset, "__len__") else 0
        compared = processes.compared_rows(rows) if rows else np.zeros(0, dtype=np.int64)
        drawn = np.isin(compared, [] if pool is None else pool)
        packed = np.zeros(processes.COMPARED, dtype=np.int64)
        packed[: len(drawn)] = drawn
        shared = self._gather(np.append([length, rows, pool is not None], packed))
        lengths, sizes, known, pools = shared[:, 0], shared[:, 1], shared[:, 2], shared[:, 3:] > 0
        # Stretches must be cut alike on all processes, which may have different numbers of rows.
        length = int(lengths.max())
        self.stretches = Stretches(own, length) if lengths.min() > 0 else None
        self._shared_rows: tuple[str, ...] = ()
        self._rows_excuse = "" if known.all() else "the sampler is of another class than those of Opacus"
        # Row numbers refer to a data set, and processes may have different ones: compare the rows themselves
        # only if the numbers overlap or the sizes differ.
        if pools.sum(axis=0).max() > 1 or len(set(sizes.tolist())) > 1:
            dataset = data_loader.dataset
            prints = self._gather(_prints(dataset.dataset if isinstance(dataset, WithCanaries) else dataset))
            self._shared_rows = processes.shared_rows(list(pools), prints, sizes.tolist())
            if not self._shared_rows and (prints == 0).all(axis=1).any():
                self._rows_excuse = "rows of their data sets cannot be compared"
            elif not self._shared_rows and processes.most_in_common(prints):
                self._rows_excuse = "some rows are equal, but they may be of different people"
            elif not self._shared_rows and sizes.max() > _READ:
                self._rows_excuse = f"{_READ} rows of each were compared, and none is in two of them"

    def share(
        self, heaviest: Tensor, *, ended: bool, alike: Sequence[Tensor | float], step: int
    ) -> tuple[Tensor, bool]:
        """Share the heaviest canary that any process has seen, and whether any audit has ended.

        `alike` are numbers for `ALIKE` that must be equal to the last bit, so the largest must equal the
        smallest; checksums of gradients and of weights, for example. It may be empty.
        """
        own = heaviest.double()
        # Double precision holds checksums below 2^53.
        numbers = [torch.as_tensor(one, device=own.device).double() for one in alike or [0] * len(ALIKE)]
        shared = torch.stack([own, torch.full_like(own, ended), *numbers, *(-one for one in numbers)])
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
        most, any_ended, *others = shared
        apart = [
            name
            for name, largest, least in zip(ALIKE, others[: len(ALIKE)], others[len(ALIKE) :], strict=True)
            if largest != -least
        ]
        # A process whose audit has ended has not read the settings of this step.
        if apart and not self._parted and not any_ended > 0:
            found, meaning = f"ranks had different {apart[0]} in step {step}", ALIKE[apart[0]]
            self._parted = f"{found}, where they should be the same: {meaning}"
        return most, bool(any_ended > 0)

    def tell(self) -> None:
        """Note that all processes made a step."""
        self._told += 1
        due = self._told <= processes.COMPARED and self._told & (self._told - 1) == 0
        if self.stretches is not None and due:
            self._same_draws = processes.same_draws(self._gather(self.stretches.fingerprints()))

    def _gather(self, own: Integers) -> Integers:
        """Gather the numbers of all processes, one row each."""
        mine = torch.tensor(own, dtype=torch.int64, device=self._device)
        every = [torch.empty_like(mine) for _ in range(self._ranks)]
        torch.distributed.all_gather(every, mine)
        return torch.stack(every).cpu().numpy()

    def findings(self, excuse: str) -> Findings:
        """Processes that do not draw independently, or that share rows, or do not share gradients.

        `excuse` is why the draws of this process itself could not be tested, which is said first.
        """
        reasons = [excuse]
        if self.stretches is None or not self._told:
            reasons.append("no draws by Poisson sampling were compared")
        if self._rows_excuse:
            reasons.append(f"whether ranks draw from the same rows is not known: {self._rows_excuse}")
        untested = "; ".join(one for one in reasons if one)
        return Findings(
            contradictions=(*self._shared_rows, *self._same_draws, *([self._parted] if self._parted else ())),
            untested={"sampling": untested} if untested else {},
        )

    @property
    def words(self) -> str:
        """The process whose sampler a report is about."""
        return f"that of rank {self._rank}, of {self._ranks}; the reports of other ranks test theirs"


def _prints(dataset: Dataset[Any]) -> Integers:
    """Fingerprints of evenly spaced rows of a data set; 0 where there are fewer.

    All are 0 if rows cannot be read, or if two of them are equal: then equal rows of two processes may well
    be different people. Randomly augmented rows are read with the same random numbers in all processes, and
    the random generators are restored.
    """
    found, rows = np.zeros(_READ, dtype=np.int64), len(dataset)  # type: ignore[arg-type]
    try:
        with seeds.global_state_kept(), torch.random.fork_rng(devices=[]):
            for number, row in enumerate(np.linspace(0, rows - 1, min(_READ, rows))):
                random.seed(0)
                np.random.seed(0)  # noqa: NPY002, the data set may use it
                torch.default_generator.manual_seed(0)  # torch.manual_seed would also seed GPUs
                digest = hashlib.blake2b(digest_size=7)
                _digest(dataset[int(row)], digest)
                found[number] = int.from_bytes(digest.digest()) or 1
    except Exception:  # any exception of the user's data set; it is then not compared
        return np.zeros_like(found)
    read = found[found != 0]
    return found if len(np.unique(read)) == len(read) else np.zeros_like(found)


def _digest(item: object, digest: hashlib.blake2b) -> None:
    """Add an item of a data set to a digest."""
    if isinstance(item, Mapping):
        for key, value in item.items():
            _digest(key, digest)
            _digest(value, digest)
    elif isinstance(item, list | tuple):
        for part in item:
            _digest(part, digest)
    elif isinstance(item, Tensor):
        digest.update(item.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif hasattr(item, "tobytes"):  # arrays and images
        digest.update(item.tobytes())
    elif isinstance(item, str | bytes | int | float | None):
        digest.update(repr(item).encode())
    else:
        raise TypeError(type(item).__name__)
