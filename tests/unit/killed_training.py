"""Trains and saves after every step in a child that is killed at a random moment; prints what each has left.

A script of its own, so that torch is imported once and children are forked while there are no threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from paceline.baselines.training.datastates_lazy import DatastatesLazy
from training_task import make_comm, make_task

from paceline.families.training.checkpointing.replica import CheckpointingReplica
from paceline.families.training.checkpointing.storage import Storage

LONGEST_S = 0.25


def make(folder: Path) -> DatastatesLazy:
    return DatastatesLazy(replace(make_task(), storage=Storage(folder, rank=0, world_size=1)), make_comm())


def digest(replica: CheckpointingReplica) -> str:
    state = replica.live_state()
    return hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()


def train(folder: Path, log: int) -> None:
    """Write the digest of every state before it is saved, and which one is said to be on disk."""
    torch.manual_seed(os.getpid())
    replica = make(folder)
    step = 0
    while True:
        replica.forward_backward(torch.randint(64, (2, 17)))
        replica.before_update()
        replica.update(step)
        step += 1
        os.write(log, f"{json.dumps([step, digest(replica), replica.completed()])}\n".encode())
        replica.save(step)


def ending(folder: Path, seconds: float) -> dict[str, object]:
    """Kill a child after some seconds of training, and look at what it has left."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        train(folder, writing)
    os.close(writing)
    with os.fdopen(reading) as lines:
        first = lines.readline()
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        rows = [json.loads(line) for line in (first + lines.read()).splitlines()]
    # a child that forks must find no threads: this storage's are gone before the next
    replica = make(folder)
    step = replica.storage.newest()
    if step is not None:
        replica.restore(step)
    replica.storage.close()
    return {
        "steps": rows[-1][0],
        "said": rows[-1][2] or 0,
        "found": step or 0,
        "same": step is None or {row[0]: row[1] for row in rows}[step] == digest(replica),
        "torn": len(list(folder.glob("step-*/writing-*"))),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    moments = random.Random(int(sys.argv[2]))
    for number in range(20):
        print(json.dumps(ending(Path(sys.argv[1]) / str(number), moments.uniform(0, LONGEST_S))))
