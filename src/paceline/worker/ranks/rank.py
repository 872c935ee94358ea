"""The body of a rank: join the groups, load techniques inside the fences, measure block after block."""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

from paceline.worker.case_error import CaseError, RuleBreachError
from paceline.worker.communication.control import Control
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.events import START, EventLog
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.machine import foreign_load
from paceline.worker.machine.device import Device, FakeDevice, open_device
from paceline.worker.machine.host import describe_host
from paceline.worker.processes.needs import need_torch
from paceline.worker.processes.process import take_secrets
from paceline.worker.ranks.loading import load_techniques, runner_module
from paceline.worker.ranks.session import Block, Session, block_from_plan

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
    runner = plan["runner"]
    tensors = need_torch(work["blocks"], runner)
    threads = all(block["family"] in WITHOUT_THREADS for block in work["blocks"])
    guard = Guard(threads=threads, tensors=tensors)
    device = _own_device(runner)
    control, communication, new_transport = Control(), None, None
    if tensors:
        from paceline.worker.ranks import group as process_group  # noqa: PLC0415 - it imports torch

        rules = job / RULES / f"{group}-{launch}-{attempt}"
        control, communication, new_transport = process_group.join(runner, rules, device, world_size)
    interface, control_interface = _interfaces()
    session = Session(
        rank=rank,
        world_size=world_size,
        launch=launch,
        seed=plan["seed"],
        fixed_seed=bool(plan["fixed_seed"]),
        device=device,
        control=control,
        communication=communication,
        events=events,
        trace=trace,
        guard=guard,
        secrets=take_secrets(),  # before techniques are imported
        techniques=load_techniques(work["blocks"], job, guard),
        interface=interface,
        interface_shared=not _has_own_network(runner),
        control_interface=control_interface,
        proofs={key: facts[rank] for key, facts in work["proofs"].items()},
        skip_after_hang=bool(plan.get("skip_after_hang")),
        new_transport=new_transport,
    )
    if rank == 0 and work["describe_host"]:
        events.emit("host", group=group, **describe_host(device))
    guard.close_distributed()
    code = run_blocks(session, work["blocks"])
    if code == 0:
        events.emit("launch_complete", group=group)
        trace.context("-|-|end")
        if tensors:
            process_group.leave()
    events.close()
    return code


def _interfaces() -> tuple[str | None, str | None]:
    """Return the network interface of techniques, and that of the harness's own messages where it is another."""
    data = os.environ.get("PACELINE_DATA_INTERFACE") or None
    control = os.environ.get("PACELINE_CONTROL_INTERFACE") or None
    return data, None if control == data else control


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
            started, waited_s = time.monotonic(), foreign_load.waiting_s()
            if session.rank == 0:
                session.events.emit("block_begin", block=block.block)
            session.waiting = None
            module.run_block(session, block)
        except Exception as error:
            _raised(session, block, error)
            return RAISED_EXIT_CODE
        if session.rank == 0:
            elapsed = time.monotonic() - started
            waiting = _waiting(session, waited_s, elapsed)
            told = {} if waiting is None else {"waiting": round(waiting, 3)}
            session.events.emit("block_end", block=block.block, elapsed_s=elapsed, **told)
    return 0


def _waiting(session: Session, before_s: float | None, elapsed_s: float) -> float | None:
    """Return the share of a block in which what it needed had no core; None where nobody can tell.

    Of its timed passes where its family has measured that, else of the whole block, in which any process counts.
    """
    if session.waiting is not None:
        return session.waiting
    now_s = foreign_load.waiting_s()
    if before_s is None or now_s is None or elapsed_s <= 0:
        return None
    return (now_s - before_s) / elapsed_s


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
