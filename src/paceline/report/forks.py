"""Pages made in several processes: forks that inherit everything, and give texts back in the order of the work."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

from paceline.errors import InfrastructureError

Files = list[tuple[str, str]]
Job = Callable[[], Files]


def in_order(jobs: Sequence[Job], processes: int) -> Iterator[tuple[str, str]]:
    """Do all jobs and yield their files, as if they were done one after another.

    Raises:
        InfrastructureError: A process died, as for want of memory.
    """
    if processes < 2 or len(jobs) < 2:
        for job in jobs:
            yield from job()
        return
    context = multiprocessing.get_context(
        "fork"
    )  # arguments are inherited: records are never copied or pickled
    gc.freeze()  # what exists is never looked through again: its pages stay shared, and nobody pays for the looking
    pipes, workers = [], []
    for number in range(processes):
        reader, writer = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(jobs[number::processes], writer), daemon=True)
        worker.start()
        writer.close()
        pipes.append(reader)
        workers.append(worker)
    try:
        for number in range(len(jobs)):
            found = _received(pipes[number % processes])
            if isinstance(found, BaseException):
                raise found
            yield from found
        for worker in workers:
            worker.join()
    finally:
        gc.unfreeze()
        for worker in workers:
            worker.kill()


def _received(pipe: Connection) -> Files | BaseException:
    try:
        found: Files | BaseException = pipe.recv()
    except EOFError as error:
        raise InfrastructureError("a process that made pages died, as for want of memory") from error
    return found


def _work(jobs: Sequence[Job], pipe: Connection) -> None:
    for job in jobs:
        try:
            pipe.send(job())
        except BaseException as error:
            pipe.send(error)
            return
