"""A job inside the caller's process, for the ``debug`` driver: threads for ranks, no isolation, breakpoints work."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

from paceline.worker.communication.comm import Comm
from paceline.worker.communication.group_control import control_over
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.communication.transport import ThreadHub, ThreadTransport
from paceline.worker.events import START, EventLog
from paceline.worker.fences.guard import Guard
from paceline.worker.launch import Job
from paceline.worker.launches.attempt import Ending
from paceline.worker.launches.blame import blame
from paceline.worker.launches.schedule import Schedule
from paceline.worker.machine.device import open_device
from paceline.worker.machine.host import describe_host
from paceline.worker.ranks.loading import load_techniques
from paceline.worker.ranks.rank import run_blocks
from paceline.worker.ranks.session import Communication, Session

_guard: Guard | None = None


def run_job(folder: Path) -> int:
    """Run every launch of every group of a job folder; return 0 when all cases have a result or a reason."""
    global _guard  # noqa: PLW0603 - an audit hook cannot be taken back, so one serves all jobs of the process
    _guard = _guard or Guard()
    job = Job(folder.resolve())
    (job.folder / "logs").mkdir(exist_ok=True)
    with contextlib.chdir(job.folder):  # where ranks run under the other drivers
        _run_launches(job, _guard)
    return 0


def _run_launches(job: Job, guard: Guard) -> None:
    log = EventLog(job.folder / "events-launcher.jsonl", launch=-1, attempt=-1, rank=-1)
    for launch, group, taking in Schedule(job.plan, job.progress, log.emit).turns():
        blocks = job.remaining(group, launch, taking)
        if blocks:
            started = time.monotonic()
            _run_group(job, group["ranks"], launch, blocks, guard)
            elapsed_s = time.monotonic() - started
            if spent := job.progress.spent(blocks, elapsed_s):
                log.emit("launch_end", group=group["group"], launch=launch, elapsed_s=elapsed_s, **spent)
            job.refresh()
    log.close()


def _run_group(job: Job, ranks: int, launch: int, blocks: list[dict[str, Any]], guard: Guard) -> None:
    control, carrier = ThreadHub(ranks), ThreadHub(ranks)
    techniques = load_techniques(blocks, job.folder, guard)
    runner, proofs = job.plan["runner"], job.proofs(ranks)

    def body(rank: int) -> None:
        events = EventLog(job.folder / f"events-{rank}.jsonl", launch=launch, attempt=0, rank=rank)
        try:
            measure(rank, events)
        except Exception as error:
            events.raised(error, context=START, status="infrastructure")
        finally:
            events.close()

    def measure(rank: int, events: EventLog) -> None:
        trace = TraceWriter(job.folder / f"trace-{rank}.bin")
        device = open_device(runner["device"], fake=runner["fake"])
        session = Session(
            rank=rank,
            world_size=ranks,
            launch=launch,
            seed=job.plan["seed"],
            fixed_seed=bool(job.plan["fixed_seed"]),
            device=device,
            control=control_over(ThreadTransport(control, rank)),
            communication=Communication(Comm, ThreadTransport(carrier, rank)),
            events=events,
            trace=trace,
            guard=guard,
            techniques=techniques,
            proofs={key: facts[rank] for key, facts in proofs.items()},
        )
        if rank == 0 and launch == 0:
            events.emit("host", **describe_host(device))
        try:
            run_blocks(session, blocks)
        finally:
            trace.close()

    if ranks == 1:
        body(0)
        _fail_missing(job, launch, blocks)
        return
    threads = [threading.Thread(target=body, args=(r,), name=f"rank {r}") for r in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _fail_missing(job, launch, blocks)


def _fail_missing(job: Job, launch: int, blocks: list[dict[str, Any]]) -> None:
    """Give every case that a raising technique kept from ending its reason."""
    fresh = job.refresh()
    if not any(event["event"] == "raised" for event in fresh):
        return
    found = blame(fresh, Ending())
    log = EventLog(job.folder / "events-launcher.jsonl", launch=launch, attempt=0, rank=-1)
    for block in blocks:
        for case in block["cases"]:
            if (launch, block["block"], case["label"]) not in job.finished:
                log.emit(
                    "case_failed",
                    block=block["block"],
                    case_id=case["case_id"],
                    label=case["label"],
                    status=found.status,
                    reason=found.reason,
                    detail=found.detail,
                )
    log.close()
