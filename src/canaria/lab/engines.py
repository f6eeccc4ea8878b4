"""Engines: this process, local processes, or a Dask cluster, all through concurrent.futures."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from canaria._core.checks import integer
from canaria._core.errors import CanariaError, InputError
from canaria._core.extras import needed_for
from canaria.lab.store import Store

Task = TypeVar("Task", bound=tuple[Any, ...])
Rows = list[dict[str, Any]]
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerLostError(CanariaError, RuntimeError):
    """Raised if a worker died; the work that it was doing is lost.

    Example:
        >>> from canaria.lab.engines import WorkerLostError
        >>> issubclass(WorkerLostError, RuntimeError)
        True
    """


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[Task], executor: Executor | None
) -> Iterator[tuple[Task, Any]]:
    """Run tasks and yield each with its result as it finishes.

    Tasks that are unfinished when the caller stops are cancelled when the engine ends.

    Args:
        function: The function to call.
        tasks: The arguments of each call.
        executor: The executor to run on; None runs one task after the other in this process.

    Yields:
        The task and its result.

    Example:
        >>> from canaria.lab.engines import run_tasks
        >>> list(run_tasks(pow, [(2, 3), (2, 4)], executor=None))
        [((2, 3), 8), ((2, 4), 16)]
    """
    if executor is None:
        for task in tasks:
            yield task, function(*task)
        return
    with _interrupts_held():
        futures = {executor.submit(function, *task): task for task in tasks}
    for future in as_completed(futures):
        yield futures[future], future.result()


def run_blocks(
    function: Callable[..., Rows],
    blocks: Mapping[str, tuple[Any, ...]],
    store: Store | None,
    executor: Executor | None,
    on_block: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Rows]:
    """Run every block that the store does not have, save each as it finishes, and return the rows by name.

    Args:
        function: The function to call; it returns the rows of a block.
        blocks: The arguments of each call, by the name of the block.
        store: The store for finished blocks; None keeps them in memory.
        executor: The executor to run on; None runs one block after the other in this process.
        on_block: Called with the numbers of finished and of all blocks, at the start and after each block.

    Example:
        >>> from canaria.lab.engines import run_blocks
        >>> def square(x):
        ...     return [{"x": x, "value": x * x}]
        >>> run_blocks(square, {"two": (2,), "three": (3,)}, store=None, executor=None)["three"]
        [{'x': 3, 'value': 9}]
    """
    found = {name: store.load(name) for name in blocks if store is not None and store.has(name)}
    on_block(len(found), len(blocks))
    missing = [(name, function, given) for name, given in blocks.items() if name not in found]
    for (name, _, _), rows in run_tasks(_named, missing, executor):
        if store is not None:
            store.save(name, rows)
        found[name] = rows
        on_block(len(found), len(blocks))
    return found


def _named(_: str, function: Callable[..., Rows], given: tuple[Any, ...]) -> Rows:
    return function(*given)


@contextmanager
def engine(workers: int | None = None, dask: str | None = None) -> Iterator[Executor | None]:
    """Open an executor: a Dask cluster, local processes, or this process.

    Args:
        workers: The number of local processes; by default one per core.
        dask: The address of a Dask scheduler; `workers` is then ignored.

    Yields:
        The executor, or None for a single worker.

    Raises:
        InputError: If `workers` is not a positive integer, or if Dask is not installed or not reachable.
        WorkerLostError: If a worker dies.

    Example:
        >>> from canaria.lab.engines import engine
        >>> with engine(workers=1) as executor:
        ...     print(executor)
        None
    """
    if dask is not None:
        with _dask_client(dask) as client:
            yield client.get_executor()
        return
    count = integer("workers", _cores() if workers is None else workers, 1)
    if count == 1:
        yield None
        return
    for name in _THREADS:
        # Otherwise every process starts as many threads as there are cores.
        os.environ.setdefault(name, "1")
    with _processes(count) as pool:
        yield pool


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    """Local processes that end with this one, and at once if the work fails or is interrupted."""
    context = get_context("spawn")
    watched, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, _end_with_parent, (watched,))
    try:
        yield pool
    except BrokenExecutor:
        raise WorkerLostError("a worker died (killed, or out of memory?)") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        alive.close()
        watched.close()


def _end_with_parent(watched: Connection) -> None:
    """Run in a worker: end as soon as the parent closes its end of the pipe, or dies."""

    def wait() -> None:
        watched.poll(None)
        # sys.exit would only end this thread.
        os._exit(0)

    Thread(target=wait, daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Delay Ctrl-C, and hide it from processes that are started meanwhile, because their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _dask_client(address: str) -> Iterator[Any]:
    with needed_for("a Dask cluster", "dask"):
        import distributed
    try:
        connect: Any = distributed.Client
        client = connect(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"Dask cluster {address!r} cannot be reached: {type(error).__name__}") from None
    try:
        yield client
    except CancelledError:
        raise WorkerLostError(f"Dask cluster {address!r} was lost") from None
    except distributed.KilledWorker:
        raise WorkerLostError("several Dask workers died of one task (out of memory?)") from None
    finally:
        client.close()
