"""Trains and saves after every step in a child that is killed; prints what each has left.

It is killed at a drawn moment after it said what every second child must have behind it, two checkpoints, or the others
one step; or, which no clock decides, before one of its operations on the disk: a file or a folder brought there, or
renamed.

A child is one rank or two, which are threads: a kill finds them at different places of their ways to the disk. Every
second child goes on from what another one left. A script of its own, so that torch is imported once and children are
forked while there are no threads.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from paceline.baselines.training.datastates_lazy import DatastatesLazy
from paceline.baselines.training.dcp_async import DcpAsync
from paceline.baselines.training.sync_save import SyncSave
from paceline.baselines.training.universal_checkpoint import UniversalCheckpoint
from training_task import on_ranks

from paceline.families.training.api.checkpointing.replica import CheckpointingReplica, Comm, Task
from paceline.families.training.api.storage import Storage

LONGEST_S = 0.25
LIVES: tuple[tuple[type[CheckpointingReplica], int], ...] = (
    (DatastatesLazy, 1),
    (DatastatesLazy, 2),
    (UniversalCheckpoint, 2),
    (SyncSave, 2),
    (DcpAsync, 2),
)
"""Techniques, and ranks that train and are killed."""
FIRST_OPERATION = 60
"""Enough of them that every technique has several checkpoints behind it."""
SEED = 20261128


def make(kind: type[CheckpointingReplica], folder: Path) -> Callable[[Task, Comm], CheckpointingReplica]:
    def on_rank(task: Task, comm: Comm) -> CheckpointingReplica:
        storage = Storage(folder, rank=task.rank, world_size=task.world_size)
        return kind(replace(task, storage=storage), comm)

    return on_rank


def digest(replica: CheckpointingReplica) -> str:
    state = replica.live_state()
    return hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()


def resume(replica: CheckpointingReplica, together: threading.Barrier) -> int:
    """Take up the newest checkpoint as the family does; return its step."""
    found = replica.storage.look()
    assert not found.harmed, found.told()
    together.wait()
    replica.storage.forget(found.torn)
    together.wait()
    if found.step is not None:
        replica.restore(found.step)
    return found.step or 0


def train(replica: CheckpointingReplica, log: int, together: threading.Barrier) -> None:
    """Write the digest of every state before it is saved, and which one is said to be on disk."""
    step = resume(replica, together)
    generator = torch.Generator().manual_seed(os.getpid() + replica.comm.rank)
    while True:
        replica.forward_backward(torch.randint(64, (2, 17), generator=generator))
        replica.exchange_gradients(step)
        replica.before_update()
        replica.update(step)
        replica.exchange_parameters(step)
        step += 1
        row = [replica.comm.rank, step, digest(replica), replica.completed()]
        os.write(log, f"{json.dumps(row)}\n".encode())
        replica.save(step)


def killed_before(number: int) -> None:
    """Kill this process before so many operations on the disk, whichever thread is at them."""
    count = itertools.count()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if next(count) >= number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapper

    os.fsync, os.rename, os.replace = (counted(call) for call in (os.fsync, os.rename, os.replace))


def life(
    kind: type[CheckpointingReplica], ranks: int, folder: Path, moment: float | int, behind: int
) -> list[list[Any]]:
    """Kill a child and return what its ranks said of their states.

    Args:
        kind: The technique.
        ranks: How many train.
        folder: Of the checkpoints.
        moment: Seconds of training, or, if an ``int``, the operation on the disk before which it is killed.
        behind: Steps that a rank must have said to be on disk before seconds are counted.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        if isinstance(moment, int):
            killed_before(moment)
        together = threading.Barrier(ranks)
        on_ranks(make(kind, folder), ranks, lambda replica: train(replica, writing, together))
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        rows = [json.loads(lines.readline())]
        if isinstance(moment, float):
            while (rows[-1][-1] or 0) < behind:
                rows.append(json.loads(lines.readline()))
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)
        rows += [json.loads(line) for line in lines.read().splitlines()]
        os.waitpid(child, 0)
        return rows


def last_step(states: list[dict[tuple[int, int], str]], rank: int) -> int:
    """Return a rank's last step in its newest life; one that was killed before a step had those of the life before."""
    for one in reversed(states):
        if steps := [step for own, step in one if own == rank]:
            return max(steps)
    return 0


def ending(number: int, folder: Path, moments: Iterator[float | int]) -> dict[str, object]:
    """Look at what one child, or the second of two, has left."""
    kind, ranks = LIVES[number % len(LIVES)]
    states: list[dict[tuple[int, int], str]] = []
    lives = 1 + number // len(LIVES) % 2
    for _ in range(lives):
        rows = life(kind, ranks, folder, next(moments), behind=2 if lives == 1 else 0)
        states.append({(rank, step): seen for rank, step, seen, _ in rows})

    def look(replica: CheckpointingReplica) -> tuple[int, str]:
        found = replica.storage.newest() or 0
        if found:
            replica.restore(found)
        # a child that forks must find no threads: this storage's are gone before the next
        replica.storage.close()
        return found, digest(replica)

    left = [pair for _, pair in on_ranks(make(kind, folder), ranks, look)]
    said = dict.fromkeys(range(ranks), 0) | {rank: done or 0 for rank, _, _, done in rows}
    return {
        "technique": kind.__name__,
        "ranks": ranks,
        "steps": min(last_step(states, r) for r in said),
        "said": min(said.values()),
        "found": sorted({found for found, _ in left}),
        "same": not left[0][0]
        or any(
            all(one.get((rank, found)) == seen for rank, (found, seen) in enumerate(left)) for one in states
        ),
        "torn": len(list(folder.glob("step-*/writing-*"))),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    chance = random.Random(SEED)
    drawn = (chance.uniform(0, LONGEST_S) for _ in itertools.count())
    moments = itertools.count(FIRST_OPERATION) if sys.argv[2] == "operations" else drawn
    for number in range(int(sys.argv[3])):
        print(json.dumps(ending(number, Path(sys.argv[1]) / str(number), moments)))
