"""The parts of processes in a changing group: the master of an elastic group, and a peer that does all-reduces."""

from __future__ import annotations

import hashlib
from typing import Any, TextIO

import torch
from torch import Tensor

from paceline.families.collectives.api.elastic import Elastic
from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.wire import Wire
from paceline.families.collectives.core.payloads import draw
from paceline.families.collectives.core.scenarios.playing import (
    MidOperationKill,
    Say,
    join_fixed_group,
    load_technique,
    serve_as_master,
)
from paceline.families.collectives.core.scenarios.playing import play as play_part
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.fault import Fault
from paceline.worker.fences.guard import Guard


def prepare() -> None:
    """Do nothing: all that peers need is imported."""


def play(config: dict[str, Any], say: Say, commands: TextIO) -> int:
    """Play the configured part; a failure is a message, then the end."""
    return play_part(config, say, commands, {"master": serve_as_master, "churn": _churn})


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
