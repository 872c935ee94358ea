"""Pages made in several processes: forks that inherit everything, and give texts back as soon as they are made."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import Queue
from threading import Thread
from typing import Any

from paceline.base.errors import InfrastructureError

Files = list[tuple[str, str | bytes]]
Job = Callable[[], Files]
Result = Files | BaseException | None
"""What a job made or raised; None when a process has nothing left to do."""

AHEAD = 16
"""Results that may wait to be asked for: enough that no process waits long, and never a whole site."""


@contextmanager
def at_work(jobs: Sequence[Job], processes: int) -> Iterator[Iterator[tuple[str, str | bytes]]]:
    """Let processes begin all jobs, each taking the next one; give an iterator over their files as they come.

    What is done inside the context goes on beside them. The iterator raises what a job raised, and
    ``InfrastructureError`` where a process died, as for want of memory.
    """
    if processes < 2 or len(jobs) < 2:
        yield (file for job in jobs for file in job())
        return
    # forks: arguments are inherited, records are never copied or pickled
    context = multiprocessing.get_context("fork")
    gc.freeze()  # what exists is never looked through again: its pages stay shared, and nobody pays for the looking
    begun = context.Value("Q", 0)
    results: Queue[Result] = Queue(AHEAD)
    workers = []
    for _ in range(processes):
        reader, writer = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(jobs, begun, writer), daemon=True)
        worker.start()
        writer.close()
        workers.append(worker)
        Thread(target=_drain, args=(reader, results), daemon=True).start()
    try:
        yield _gathered(results, processes)
    finally:
        gc.unfreeze()
        for worker in workers:
            worker.kill()
            worker.join()


def _gathered(results: Queue[Result], processes: int) -> Iterator[tuple[str, str | bytes]]:
    while processes:
        found = results.get()
        if isinstance(found, BaseException):
            raise found
        if found is None:
            processes -= 1
        else:
            yield from found


def _drain(pipe: Connection, results: Queue[Result]) -> None:
    """Pass on a process's results, until it has said that it is done, or is no more."""
    found: Result = []
    while isinstance(found, list):
        try:
            found = pipe.recv()
        except (EOFError, OSError):
            found = InfrastructureError("a process that made pages died, as for want of memory")
        results.put(found)


def _work(jobs: Sequence[Job], begun: Any, pipe: Connection) -> None:
    gc.enable()
    try:
        while True:
            with begun.get_lock():
                number, begun.value = begun.value, begun.value + 1
            if number >= len(jobs):
                break
            pipe.send(jobs[number]())
        pipe.send(None)
    except BaseException as error:
        pipe.send(error)
