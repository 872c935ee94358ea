"""The body of a rank: join the groups, load techniques inside the fences, measure block after block."""

from __future__ import annotations

import importlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline.worker.communication.rules import RuleBreachError, RulesTransport
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.communication.transport import TorchTransport, Transport
from paceline.worker.events import START, EventLog
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.machine.device import Device, FakeDevice, open_device
from paceline.worker.machine.host import describe_host
from paceline.worker.processes.process import take_secrets
from paceline.worker.ranks.loading import load_techniques, runner_module
from paceline.worker.ranks.session import Block, CaseError, Control, Session, block_from_plan

_new_group = dist.new_group
"""Bound at import, before any technique is loaded."""
RULES = "rules"
"""Folder of a job below which ranks that are held to a carrier's rules write what they start."""
WITHOUT_THREADS = ("collectives", "kernels")
"""Families of which nothing that techniques are given starts a thread."""
RAISED_EXIT_CODE = 13
"""Exit code of a rank whose technique raised."""


def run_rank(job: Path, *, group: str, launch: int, attempt: int) -> int:
    """Run one rank of a process group from torchrun's environment."""
    plan = json.loads((job / "plan.json").read_text())
    work = json.loads((job / "attempts" / f"{group}-{launch}-{attempt}.json").read_text())
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    events = EventLog(job / f"events-{rank}.jsonl", launch=launch, attempt=attempt, rank=rank)
    trace = TraceWriter(job / f"trace-{rank}.bin")
    trace.context(START)
    guard = Guard(threads=all(block["family"] in WITHOUT_THREADS for block in work["blocks"]))
    runner = plan["runner"]
    device = _own_device(runner)
    torch.set_num_threads(max(int(os.environ.get("OMP_NUM_THREADS", "1")), 1))
    carriers = Carriers(runner, job / RULES / f"{group}-{launch}-{attempt}", device)
    control = _join(world_size)
    carrier = carriers()
    control_group = Control(control)
    control_group.synchronise_clocks()
    interface = os.environ.get("PACELINE_DATA_INTERFACE") or None
    control_interface = os.environ.get("PACELINE_CONTROL_INTERFACE") or None
    secrets = take_secrets()
    session = Session(
        rank=rank,
        world_size=world_size,
        launch=launch,
        seed=plan["seed"],
        fixed_seed=bool(plan["fixed_seed"]),
        device=device,
        control=control_group,
        transport=carrier,
        events=events,
        trace=trace,
        guard=guard,
        techniques=load_techniques(work["blocks"], job, guard),
        interface=interface,
        interface_shared=not _has_own_network(runner),
        control_interface=None if control_interface == interface else control_interface,
        proofs={key: facts[rank] for key, facts in work["proofs"].items()},
        secrets=secrets,
        skip_after_hang=bool(plan.get("skip_after_hang")),
        new_transport=carriers,
    )
    if rank == 0 and work["describe_host"]:
        events.emit("host", group=group, **describe_host(device))
    guard.close_distributed()
    code = run_blocks(session, work["blocks"])
    if code == 0:
        events.emit("launch_complete", group=group)
        trace.context("-|-|end")
        dist.destroy_process_group()
    events.close()
    return code


def _own_device(runner: dict[str, Any]) -> Device:
    """Open this rank's device, before the ranks meet: a group that lacks devices must not wait for one another.

    Raises:
        PrerequisiteError: The device is missing, or there are fewer than ranks on this host.
    """
    return open_device(
        runner["device"],
        index=int(os.environ.get("LOCAL_RANK", "0")),
        num_ranks=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        shared=bool(runner.get("share_devices")),
        fake=runner["fake"],
    )


def _has_own_network(runner: dict[str, Any]) -> bool:
    """Tell whether every rank has a network namespace for itself, so that nobody else's bytes are in its counters."""
    alone = (runner.get("docker") or {}).get("containers") == "one-a-rank"
    return alone or runner["network"] == "namespaces"


def run_blocks(session: Session, blocks: list[dict[str, Any]]) -> int:
    """Measure the blocks in the given order; stop at the first technique that raises: other ranks may wait for it."""
    for planned in blocks:
        data = session.without_hung(planned)
        if not data["cases"]:
            continue
        block = block_from_plan(data)
        started = time.monotonic()
        try:
            module = importlib.import_module(runner_module(data))
            if isinstance(session.device, FakeDevice):
                session.device.reseed(session.draw_seed("device", block.block), launch=session.launch)
            started = time.monotonic()
            if session.rank == 0:
                session.events.emit("block_begin", block=block.block)
            module.run_block(session, block)
        except Exception as error:
            _raised(session, block, error)
            return RAISED_EXIT_CODE
        if session.rank == 0:
            elapsed = time.monotonic() - started
            session.events.emit("block_end", block=block.block, elapsed_s=elapsed)
    return 0


def _raised(session: Session, block: Block, error: BaseException) -> None:
    """Tell which technique raised; the launcher excludes it and goes on with the rest."""
    out_of_memory = isinstance(error, MemoryError) or "can't allocate memory" in str(error).lower()
    out_of_memory = out_of_memory or "out of memory" in str(error).lower()
    status = error.status if isinstance(error, CaseError) else "crashed"
    if isinstance(error, ContractBreachError | RuleBreachError):
        status = "refused"
    context = session.trace.last_context
    if not context.startswith(f"{block.block}|"):  # none of its techniques had begun
        context, status = f"{block.block}|-|start", "infrastructure"
    session.events.raised(
        error,
        block=block.block,
        context=context,
        status="out_of_memory" if out_of_memory else status,
    )


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
