"""What a peer does in training that loses peers: local steps between the exchanges of a technique, and what is said.

This runs in a process of its own, which is really killed. The steps are the family's; the technique has the control
between them alone, inside the fences. After every meeting and around every exchange the rank is told a digest of the
weights and a sketch of them, from which it judges the exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import nn

from paceline.families.collectives.api.wire import Wire
from paceline.families.collectives.core.scenarios.playing import (
    MidOperationKill,
    Say,
    join_fixed_group,
    kill_this_process,
    load_technique,
    serve_as_master,
)
from paceline.families.collectives.core.scenarios.playing import play as play_part
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import Transformer, loss_and_gradients
from paceline.families.training.api.place import Comm, Member, Place
from paceline.families.training.api.rounds import ends_round
from paceline.families.training.core.data.setting import prepare_torch
from paceline.families.training.ops.churn import run
from paceline.families.training.ops.churn.digests import Sketch, digest_of
from paceline.families.training.ops.churn.setting import setting_of
from paceline.worker.communication.fault import Fault
from paceline.worker.fences.guard import Guard


def prepare() -> None:
    """Do what every peer would do before it trains: imports, and what torch's optimisers do once."""
    torch.set_num_threads(1)
    run.sealed(("churn",))
    prepare_torch(torch.device("cpu"))


def play(config: dict[str, Any], say: Say, commands: TextIO) -> int:
    """Play the configured part: the group's master, or a peer that trains."""
    return play_part(config, say, commands, {"master": serve_as_master, "train": _train})


def kill_in_layer(model: Transformer, layer: int, *, backward: bool, strike: Callable[[], None]) -> None:
    """Call ``strike`` whenever a layer has computed."""
    module = model.layers[layer]

    def forward_hook(module: nn.Module, given: Any, made: Any) -> None:
        strike()

    def backward_hook(module: nn.Module, given: Any, made: Any) -> None:
        strike()

    if backward:
        module.register_full_backward_hook(backward_hook)
    else:
        module.register_forward_hook(forward_hook)


class Trainee:
    """One peer's model, its sequences, and its death where the script says so.

    Args:
        config: What the peer was told.
        say: Tells the rank.
    """

    def __init__(self, config: dict[str, Any], say: Say) -> None:
        self.config, self.say = config, say
        self.peer = int(config["peer"])
        setting = setting_of(config, torch.device("cpu"))
        self.task = setting.task(rank=self.peer, world_size=config["num_peers"])
        self.flat = Flat(self.task.model)
        self.optimizer = self.task.optimizer([self.flat.parameter])
        rows = setting.rows(self.peer, config["num_peers"] + 1)
        self.batches = torch.stack([setting.batch(step, rows) for step in range(setting.steps)])
        self.sketch = Sketch(self.flat.values.numel(), config["sketch_seed"])
        self.sync_every = int(config["sync_every"])
        self.done = 0
        """Steps that this peer has done, or its group had before it came."""
        self.copies = {0: self.flat.values.clone()}
        """Weights by the steps done, those that are evaluated."""
        self._computing = -1
        """The step that is being computed, from 0."""
        kill = config["kill"]
        if kill["kill_step"] >= 0 and not kill["sending"]:
            assert isinstance(self.task.model, Transformer)
            strike = self._strike_at(kill["kill_step"])
            kill_in_layer(self.task.model, kill["layer"], backward=kill["backward"], strike=strike)

    def _strike_at(self, step: int) -> Callable[[], None]:
        def strike() -> None:
            if self._computing == step:
                self.die()

        return strike

    def die(self) -> None:
        """Tell the rank, and be killed."""
        self.say("struck")
        kill_this_process()

    def describe(self, kind: str, **fields: Any) -> None:
        """Tell the rank about the weights."""
        values = self.flat.values
        digest = digest_of(values.numpy())
        self.say(kind, step=self.done, digest=digest, sketch=self.sketch.of(values), **fields)

    def train_round(self) -> None:
        """Take local steps to the end of the round."""
        while True:
            self._computing = self.done
            for group in self.optimizer.param_groups:
                group["lr"] = self.task.rate(self.done)
            self.flat.gradients.zero_()
            loss_and_gradients(self.task.model, self.batches[self.done].long())
            self.optimizer.step()
            self.done += 1
            self.say("step", step=self.done)
            if ends_round(self.done - 1, self.sync_every, self.task.steps):
                return

    def copy_weights(self) -> None:
        """Copy the weights where they are to be evaluated."""
        if self.done in self.config["evaluate_after"]:
            self.copies[self.done] = self.flat.values.clone()

    def write(self) -> None:
        """Leave the copies for the rank to read."""
        path = Path(self.config["folder"]) / "weights.npy"
        np.save(path, torch.stack(list(self.copies.values())).numpy())
        self.say("weights", path=str(path), steps=list(self.copies))


class Sandbox:
    """A technique on this peer, behind its fences."""

    def __init__(self, config: dict[str, Any], trainee: Trainee) -> None:
        self.config, self.trainee = config, trainee
        self.guard = Guard()
        factory = load_technique(config, self.guard).factory
        kill = config["kill"]
        self._last = kill["kill_step"] if kill["sending"] else -1
        """The step whose exchange this peer does not survive."""
        self._dies = MidOperationKill(self._last, kill["message"], trainee.die)
        self._groups: list[Comm] = []
        self.wire = Wire(config["host"], on_tensor=self._dies.strike, outside=self.guard.outside)
        with self.guard.watch():
            self.member: Member = factory(self._place(), **config["options"])

    def _place(self) -> Place:
        values = self.trainee.flat.values
        return Place(
            weights=values,
            peer=self.trainee.peer,
            wire=self.wire,
            master=self.config.get("master"),
            problem=self.trainee.task.problem("all_reduce", values.numel()),
            fixed_group=self._fixed_group,
        )

    def _fixed_group(self) -> Comm:
        with self.guard.outside():
            deadly = Fault(kind="kill", rank=self.trainee.peer)
            comm = join_fixed_group(self.config, faults=[deadly] if self._last >= 0 else [])
        comm.arm_faults(False)
        self._groups.append(comm)
        return comm

    def join(self) -> None:
        """Enter the group."""
        with self.guard.watch():
            self.member.join()

    def begin_round(self) -> int:
        """Meet the others; return the steps that the group has done."""
        with self.guard.watch():
            return int(self.member.begin_round(self.trainee.done))

    def exchange(self) -> list[int]:
        """Take the outer step; return the peers whose weights are in it. A peer that dies in it is not watched."""
        dying = self.trainee.done - 1 == self._last
        self._dies.current = self.trainee.done - 1
        for comm in self._groups:
            comm.arm_faults(dying)
        with nullcontext() if dying else self.guard.watch():
            members = [int(peer) for peer in self.member.exchange()]
        self._dies.current = -1
        return members


def _train(config: dict[str, Any], say: Say, commands: TextIO) -> None:
    """Train round by round until the last step, or until the script's end for this peer."""
    trainee = Trainee(config, say)
    sandbox = Sandbox(config, trainee)
    say("ready")
    commands.readline()
    sandbox.join()
    say("joined")
    while True:
        trainee.done = sandbox.begin_round()
        trainee.describe("round")
        if trainee.done >= trainee.task.steps:
            break
        trainee.train_round()
        trainee.describe("exchange")
        members = sandbox.exchange()
        trainee.describe("done", members=members)
        trainee.copy_weights()
    if trainee.peer == 0:
        trainee.write()
