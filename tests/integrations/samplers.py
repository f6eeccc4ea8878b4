"""Samplers that programs write themselves."""

from collections.abc import Iterator

import torch


class Poisson:
    """A sampler that is no torch Sampler, and does not say its rate: 1 over the number of batches."""

    def __init__(self, rows: int, batches: int) -> None:
        self.rows, self.batches = rows, batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self.batches):
            yield torch.nonzero(torch.rand(self.rows) < 1 / self.batches).ravel().tolist()


class Shuffled(Poisson):
    """Says nothing of it."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from torch.randperm(self.rows).view(self.batches, -1).tolist()
