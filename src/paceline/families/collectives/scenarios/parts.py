"""The parts that peers of this family play in scenarios.

``master`` serves an elastic group, ``churn`` does all-reduces in a changing group, ``steps`` does training-like steps
in a fixed group, traced.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
from torch import Tensor

from paceline.families.collectives.payloads import draw
from paceline.families.collectives.problem import Problem
from paceline.families.collectives.scenarios.playing import (
    MidOperationKill,
    Say,
    join_fixed_group,
    load_technique,
    serve_as_master,
)
from paceline.families.collectives.scenarios.playing import play as play_part
from paceline.families.collectives.scenarios.wire import PeerLostError, Wire
from paceline.worker.comm import Comm
from paceline.worker.fault import Fault
from paceline.worker.guard import Guard
from paceline.worker.trace import TraceWriter

_perf_ns = time.perf_counter_ns


class Elastic(Protocol):
    """The contract of techniques for ``churn``.

    A technique is made with a problem, a wire, the master's address (None when it needs no master), the peer's own
    number, and a function that joins a fixed process group of the first peers. Its module may define
    ``master(wire, num_peers)``, which then runs in a process of its own until it is killed.
    """

    def join(self) -> None:
        """Enter the group; return when this peer may take part in the next operation."""
        ...

    def synchronise(self, state: Tensor, step: int) -> int:
        """Make the state bit-identical on all members (a newcomer's is replaced); return the group's step."""
        ...

    def all_reduce(self, tensor: Tensor) -> tuple[int, ...]:
        """Sum over the current members in place; return the numbers of the peers whose data is in the sum."""
        ...


def prepare() -> None:
    """Do nothing: all that peers need is imported."""


def play(config: dict[str, Any], say: Say, commands: TextIO) -> int:
    """Play the configured part; a failure is a message, then the end."""
    parts = {"master": serve_as_master, "churn": _churn, "steps": _steps}
    return play_part(config, say, commands, parts)


def _problem(config: dict[str, Any]) -> Problem:
    return Problem(
        operation="all_reduce",
        rank=config["peer"],
        world_size=config["num_peers"],
        dtype=torch.float32,
        device=torch.device("cpu"),
        count=config["count"],
        seed=config["seed"],
    )


def contribution(config: dict[str, Any], peer: int, step: int) -> Tensor:
    """Return what a peer adds in a step: small integers, so that every sum is exact whoever takes part."""
    return draw(
        "integers",
        config["count"],
        seed=config["seed"] + step,
        rank=peer,
        world_size=16,
        dtype=torch.float32,
    )


def _churn(config: dict[str, Any], say: Say, commands: TextIO) -> None:
    """Take part in all-reduces until the last step; verify every sum; keep a state that all peers must share."""
    kill = MidOperationKill(config["kill_step"], config["kill_message"])
    wire = Wire(config["host"], on_tensor=kill.strike)
    comms: list[Comm] = []

    def fixed_group() -> Comm:
        deadly = Fault(kind="kill", rank=config["peer"], at_operation=kill.step)
        comms.append(join_fixed_group(config, faults=[deadly] if kill.step >= 0 else []))
        return comms[-1]

    factory = load_technique(config, Guard()).factory
    peer: Elastic = factory(_problem(config), wire, config.get("master"), config["peer"], fixed_group)
    say("ready")
    commands.readline()
    state = torch.zeros(config["count"], dtype=torch.float32)
    peer.join()
    say("joined")
    step = -1
    while True:
        step = peer.synchronise(state, step + 1)
        if step >= config["steps"]:
            break
        kill.current = step
        tensor = contribution(config, config["peer"], step)
        sent = wire.sent_bytes + sum(sum(c.counters.sent_bytes) for c in comms)
        say("begin", step=step)
        members = peer.all_reduce(tensor)
        moved = wire.sent_bytes + sum(sum(c.counters.sent_bytes) for c in comms) - sent
        say("done", step=step, members=list(members), bytes=moved)
        wrong = _wrong_sum(config, tensor, members, step)
        if wrong:
            say("wrong", step=step, reason=wrong)
        state = state.mul_(0.5).add_(tensor)
    say("state", sha256=hashlib.sha256(state.numpy().tobytes()).hexdigest(), step=step)


def _wrong_sum(config: dict[str, Any], tensor: Tensor, members: tuple[int, ...], step: int) -> str | None:
    expected = torch.zeros_like(tensor)
    for member in members:
        expected += contribution(config, member, step)
    if torch.equal(tensor, expected):
        return None
    return f"step {step}: the result is not the sum over peers {list(members)}"


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


__all__ = ["Elastic", "PeerLostError", "Wire", "play"]
