"""What peers do around their parts: load the technique, serve as its master, join a fixed group, say how they ended."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

from paceline.base.families.family import load_family
from paceline.families.collectives.api.wire import Wire
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.communication.transport import TorchTransport
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.ranks.loading import load_techniques
from paceline.worker.ranks.session import Loaded

# Bound at import: a technique that replaced os.kill could otherwise survive its own scenario.
_kill = os.kill
Say = Callable[..., None]
Part = Callable[[dict[str, Any], Say, TextIO], None]
GROUP_TIMEOUT_S = 30


def kill_this_process() -> None:
    """Die at once, as by the operating system's hand."""
    _kill(os.getpid(), signal.SIGKILL)


class MidOperationKill:
    """Kills this process while it sends its n-th tensor of a step; step −1 means never."""

    def __init__(self, step: int, at_message: int, die: Callable[[], None] = kill_this_process) -> None:
        self.step, self._die = step, die
        self.current = -1
        self._left = at_message

    def strike(self) -> None:
        """Count a tensor; die when it is the one."""
        if self.current == self.step >= 0:
            self._left -= 1
            # In the middle of an operation: some tensors of this step have been sent, and neighbours wait for the rest.
            if self._left < 0:
                self._die()


def play(config: dict[str, Any], say: Say, commands: TextIO, parts: Mapping[str, Part]) -> int:
    """Play the configured part; a failure is a message, then the end."""
    # All peers share the machine's cores.
    torch.set_num_threads(1)
    try:
        parts[config["part"]](config, say, commands)
    except Exception as error:
        breach = isinstance(error, ContractBreachError)
        text = str(error) if breach else f"{type(error).__name__}: {error}"
        print(traceback.format_exc(limit=12), file=sys.stderr)
        say("failed", reason=text[:400], status="refused" if breach else "crashed")
        return 1
    say("end")
    return 0


def load_technique(config: Mapping[str, Any], guard: Guard) -> Loaded:
    """Load the scenario's technique inside the fences.

    Raises:
        CaseError: It was refused, or cannot be imported.
    """
    family = load_family(config["family"])
    block = {
        "family": family.name,
        "params": {family.operation_key: config["operation"]},
        "cases": [{"module": config["module"], "technique": config["technique"]}],
    }
    loaded = load_techniques([block], Path(config["job"]), guard)
    found = loaded[f"{config['module']}:{config['technique']}"]
    if found.refusal is not None:
        raise found.refusal
    return found


def serve_as_master(config: dict[str, Any], say: Say, commands: TextIO) -> None:
    """Run the ``master`` of the technique's module until it is killed."""
    load_technique(config, Guard())
    wire = Wire(config["host"])
    say("listening", address=list(wire.address))
    sys.modules[config["module"]].master(wire, config["num_peers"])


def join_fixed_group(
    config: Mapping[str, Any], *, trace: TraceWriter | None = None, faults: Any = ()
) -> Comm:
    """Join the fixed process group of the first peers."""
    if config.get("interface"):
        # Gloo reads it when the group is made, and would otherwise take the address of the host's name.
        os.environ["GLOO_SOCKET_IFNAME"] = config["interface"]
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{config['store'][0]}:{config['store'][1]}",
        rank=config["peer"],
        world_size=config["num_peers"],
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
    )
    return Comm(TorchTransport(None), trace=trace, faults=faults)
