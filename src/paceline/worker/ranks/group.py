"""The process group of a rank: its control group, the groups of techniques, and how it is left."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.worker.communication.comm import Comm
from paceline.worker.communication.control import Control
from paceline.worker.communication.group_control import control_over
from paceline.worker.communication.rules import RulesTransport
from paceline.worker.communication.transport import TorchTransport, Transport
from paceline.worker.machine.device import Device
from paceline.worker.ranks.session import Communication

_new_group = dist.new_group
"""Bound at import, before any technique is loaded."""


def join(
    runner: dict[str, Any], folder: Path, device: Device, world_size: int
) -> tuple[Control, Communication, Carriers]:
    """Meet the other ranks; all call it together.

    Args:
        runner: The resolved profile.
        folder: Where ranks that are held to rules write what they start; a folder a group.
        device: This rank's.
        world_size: Number of ranks.

    Returns:
        The harness's messages, the communicators of techniques, and what makes further groups for them.
    """
    torch.set_num_threads(max(int(os.environ.get("OMP_NUM_THREADS", "1")), 1))
    carriers = Carriers(runner, folder, device)
    control = control_over(_join(world_size))
    communication = Communication(Comm, carriers())
    control.synchronise_clocks()
    return control, communication, carriers


def leave() -> None:
    """End the group, when all has been measured."""
    dist.destroy_process_group()


def _join(world_size: int) -> Transport:
    """Make the control group (Gloo, on the control interface); groups that follow take the data interface."""
    if world_size == 1 and "MASTER_ADDR" not in os.environ:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    control_interface = os.environ.get("PACELINE_CONTROL_INTERFACE")
    if control_interface:
        os.environ["GLOO_SOCKET_IFNAME"] = control_interface
    dist.init_process_group("gloo", timeout=_timeout())
    data_interface = os.environ.get("PACELINE_DATA_INTERFACE")
    if data_interface:
        os.environ["GLOO_SOCKET_IFNAME"] = data_interface
    return TorchTransport(None)


class Carriers:
    """Makes groups of all ranks for techniques: sockets, threads and buffers of their own. All ranks call it together.

    Args:
        runner: The resolved profile.
        folder: Where ranks that are held to rules write what they start; a folder a group.
        device: This rank's.
    """

    def __init__(self, runner: dict[str, Any], folder: Path, device: Device) -> None:
        self._runner, self._folder, self._device = runner, folder, device
        self._number = 0

    def __call__(self) -> TorchTransport:
        """Make one, and let all ranks take part in its first operation."""
        backend = self._runner["backend"] or _default_backend(self._runner["device"])
        made = _new_group(backend=backend, timeout=_timeout())
        if self._runner.get("rules"):
            transport: TorchTransport = RulesTransport(self._folder / str(self._number), made)
        else:
            transport = TorchTransport(made)
        self._number += 1
        transport.meet(self._device.torch_type)
        self._device.synchronize()
        return transport


def _timeout() -> timedelta:
    return timedelta(seconds=float(os.environ.get("PACELINE_GROUP_TIMEOUT_S", "1800")))


def _default_backend(device: str) -> str:
    if device in ("cpu", "fake"):
        return "gloo"
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    return dist.get_default_backend_for_device(accelerator.type)
