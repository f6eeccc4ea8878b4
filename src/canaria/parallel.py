"""Engines: this process, local processes, or a Dask cluster, all through concurrent.futures."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from canaria._validate import InputError, integer

Task = TypeVar("Task", bound=tuple[Any, ...])
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[Task], executor: Executor | None
) -> Iterator[tuple[Task, Any]]:
    """Yield (task, result) as they finish; without an executor, one after the other."""
    if executor is None:
        for task in tasks:
            yield task, function(*task)
        return
    futures = {executor.submit(function, *task): task for task in tasks}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def engine(workers: int | None = None, dask: str | None = None) -> Iterator[Executor | None]:
    """An executor: a Dask cluster by address, else local processes; None for a single worker."""
    if dask is not None:
        with _dask_client(dask) as client:
            yield client.get_executor()
        return
    count = integer("workers", _cores() if workers is None else workers, 1)
    if count == 1:
        yield None
        return
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    try:
        import distributed
    except ImportError:
        raise InputError("a Dask cluster needs the extra: pip install canaria[dask]") from None
    try:
        connect: Any = distributed.Client
        client = connect(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"Dask cluster {address!r} cannot be reached: {type(error).__name__}") from None
    try:
        yield client
    finally:
        client.close()
