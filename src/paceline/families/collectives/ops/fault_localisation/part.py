"""The part of a watched rank: training-like steps in a fixed group, traced, of which one rank's may go wrong."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from paceline.families.collectives.core.scenarios.playing import Say, join_fixed_group
from paceline.families.collectives.core.scenarios.playing import play as play_part
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.fault import Fault
from paceline.worker.communication.trace import TraceWriter

_perf_ns = time.perf_counter_ns


def prepare() -> None:
    """Do nothing: all that peers need is imported."""


def play(config: dict[str, Any], say: Say, commands: TextIO) -> int:
    """Play the configured part; a failure is a message, then the end."""
    return play_part(config, say, commands, {"steps": _steps})


def _steps(config: dict[str, Any], say: Say, commands: TextIO) -> None:
    """Run training-like steps (computation, then a ring all-reduce) on command, traced, with an injected fault."""
    trace = TraceWriter(Path(config["trace"]))
    trace.context("steps|-|start")
    faults = [Fault(**f) for f in config["faults"]]
    comm = join_fixed_group(config, trace=trace, faults=faults)
    work = torch.randn(192, 192)
    buffer = torch.ones(config["count"])
    missing = config["missing_step"] if config["missing_rank"] == config["peer"] else -1
    slow = config["slow_factor"] if config["slow_rank"] == config["peer"] else 1.0
    say("ready")
    trace.context("steps|-|time")
    for line in iter(commands.readline, ""):
        order = json.loads(line)
        name = order["segment"]
        comm.tracing(name != "plain")
        durations: list[float] = []
        for step in range(order["steps"]):
            began = _perf_ns()
            repeats = config["work"]
            if name == "faulty" and slow != 1.0:
                repeats = round(repeats * slow)
            comm.begin_call()
            buffer.fill_(1.0)
            for _ in range(repeats):
                work = torch.tanh(work @ work * 0.07)
            comm.arm_faults(name == "faulty")
            if name == "faulty" and step == missing:
                comm.backend.all_reduce(torch.ones(1))  # the call after the one that this rank leaves out
            ring_all_reduce(comm, buffer)
            durations.append((_perf_ns() - began) * 1e-9)
        say("segment", name=name, median_s=statistics.median(durations), steps=len(durations))


def ring_all_reduce(comm: Comm, buffer: Tensor) -> None:
    """Sum a buffer around a ring, as a stand-in for a gradient exchange."""
    size, rank = comm.world_size, comm.rank
    chunks = list(buffer.tensor_split(size))
    incoming = torch.empty_like(chunks[0])
    for phase in range(2):
        for step in range(size - 1):
            send, receive = (rank - step + phase) % size, (rank - step - 1 + phase) % size
            target = incoming[: chunks[receive].numel()] if phase == 0 else chunks[receive]
            comm.exchange(chunks[send], (rank + 1) % size, target, (rank - 1) % size)
            if phase == 0:
                chunks[receive].add_(target)
