"""Pages made in several processes: forks that inherit everything, and give texts back in the order of the work."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import Queue
from threading import Thread

from paceline.errors import InfrastructureError

Files = list[tuple[str, str | bytes]]
Job = Callable[[], Files]
Result = Files | BaseException

AHEAD = 16
"""Results of a process that may wait to be asked for: enough that it never waits long, and never a whole site."""


@contextmanager
def at_work(jobs: Sequence[Job], processes: int) -> Iterator[Iterator[tuple[str, str | bytes]]]:
    """Let processes begin all jobs; give an iterator over their files, as if they were done one after another.

    What is done inside the context goes on beside them. The iterator raises what a job raised, and
    ``InfrastructureError`` where a process died, as for want of memory.
    """
    if processes < 2 or len(jobs) < 2:
        yield (file for job in jobs for file in job())
        return
    context = multiprocessing.get_context(
        "fork"
    )  # arguments are inherited: records are never copied or pickled
    gc.freeze()  # what exists is never looked through again: its pages stay shared, and nobody pays for the looking
    workers, pipes = [], []
    for number in range(processes):
        reader, writer = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(jobs[number::processes], writer), daemon=True)
        worker.start()
        writer.close()
        workers.append(worker)
        pipes.append(reader)
    shares = [len(jobs[number::processes]) for number in range(processes)]
    results = [_drained(pipe, share) for pipe, share in zip(pipes, shares, strict=True)]
    try:
        yield _gathered(results, len(jobs))
    finally:
        gc.unfreeze()
        for worker in workers:
            worker.kill()
            worker.join()


def _gathered(results: Sequence[Queue[Result]], num_jobs: int) -> Iterator[tuple[str, str | bytes]]:
    for number in range(num_jobs):
        found = results[number % len(results)].get()
        if isinstance(found, BaseException):
            raise found
        yield from found


def _drained(pipe: Connection, count: int) -> Queue[Result]:
    """Read a process's results as it gives them, a few ahead of who asks."""
    results: Queue[Result] = Queue(AHEAD)

    def drain() -> None:
        for _ in range(count):
            try:
                found: Result = pipe.recv()
            except (EOFError, OSError):
                found = InfrastructureError("a process that made pages died, as for want of memory")
            results.put(found)
            if isinstance(found, BaseException):
                return

    Thread(target=drain, daemon=True).start()
    return results


def _work(jobs: Sequence[Job], pipe: Connection) -> None:
    for job in jobs:
        try:
            pipe.send(job())
        except BaseException as error:
            pipe.send(error)
            return
