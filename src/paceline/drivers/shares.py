"""Shares of a job: folders of its own blocks for each task of an array, so that tasks never write the same file.

    shares/N/plan.json     the plan with this share's blocks only
    shares/N/run.sh        executes them; events, logs and artifacts come out beside it
    shares/N/engine …      links to the job's own copies

A share is a job folder like any other.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.base.files.events import read_events

SHARES = "shares"
LINKED = ("engine", "baselines", "user")


def divide(plan: Mapping[str, Any], num_shares: int) -> list[dict[str, Any]]:
    """Return the plans of the shares: blocks are dealt out in turn, so that shares take about as long.

    Args:
        plan: The whole plan.
        num_shares: How many at most; no share is empty.
    """
    names = [block["block"] for block in plan["blocks"]]
    count = max(min(num_shares, len(names)), 1)
    plans: list[dict[str, Any]] = []
    for share in range(count):
        own = set(names[share::count])
        groups = [{**g, "blocks": [b for b in g["blocks"] if b in own]} for g in plan["groups"]]
        blocks = [b for b in plan["blocks"] if b["block"] in own]
        plans.append({**plan, "blocks": blocks, "groups": [g for g in groups if g["blocks"]]})
    return plans


def share_folders(job: Path) -> list[Path]:
    """Return the folders of a job's shares in order; none for a job that was not divided."""
    found = (p for p in (job / SHARES).glob("*") if p.name.isdigit())
    return sorted(found, key=lambda p: int(p.name))


def make_shares(job: Path, num_shares: int) -> list[Path]:
    """Divide a job folder; one that was divided stays as it is."""
    if not (job / SHARES).is_dir():
        plans = divide(json.loads((job / "plan.json").read_text()), num_shares)
        unfinished = job / f".{SHARES}"
        shutil.rmtree(unfinished, ignore_errors=True)
        for share, plan in enumerate(plans):
            folder = unfinished / str(share)
            folder.mkdir(parents=True)
            (folder / "plan.json").write_text(json.dumps(plan, sort_keys=True))
            shutil.copy(job / "run.sh", folder / "run.sh")
            for name in LINKED:
                if (job / name).exists():
                    (folder / name).symlink_to(Path("..", "..", name))
        unfinished.replace(job / SHARES)
    return share_folders(job)


def missing_cases(
    folder: Path, more: Iterable[Mapping[str, Any]] = ()
) -> list[tuple[int, str, dict[str, Any]]]:
    """Return (launch, block, case) of everything that a folder's plan asks for and its events do not hold.

    Args:
        folder: A job folder or a share.
        more: Further events about it.
    """
    plan = json.loads((folder / "plan.json").read_text())
    finished: set[tuple[int, str, str]] = set()
    stopped: dict[str, int] = {}
    events = [e for path in folder.glob("events-*.jsonl") for e in read_events(path, 0)[0]]
    for event in [*events, *more]:
        if event.get("event") in ("result", "case_failed"):
            finished.add((event["launch"], event["block"], event["label"]))
        elif event.get("event") == "block_stopped":
            stopped[event["block"]] = event["launches"]
    return [
        (launch, block["block"], case)
        for block in plan["blocks"]
        for launch in range(stopped.get(block["block"], block["protocol"]["launches"]))
        for case in block["cases"]
        if (launch, block["block"], case["label"]) not in finished
    ]


def append_event(path: Path, event: Mapping[str, Any]) -> None:
    """Add one event of the controller's own to an event file, whole."""
    line = json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def fail_missing(folder: Path, events: Path, reason: str, detail: str | None = None) -> None:
    """Blame what a folder still lacks on the infrastructure, so that the run has a record.

    Args:
        folder: A job folder or a share.
        events: The event file that tells of it.
        reason: Why the cases have no result.
        detail: What is known besides.
    """
    for launch, block, case in missing_cases(folder):
        append_event(
            events,
            {
                "event": "case_failed",
                "time_s": time.time(),
                "launch": launch,
                "attempt": 0,
                "rank": -1,
                "block": block,
                "case_id": case["case_id"],
                "label": case["label"],
                "status": "infrastructure",
                "reason": reason,
                "detail": detail,
            },
        )
