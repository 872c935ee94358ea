"""The launcher: starts a fresh process group for every launch of a job and survives what happens to it.

``python -m paceline.worker.launch JOB`` runs everything that the job's event files do not hold yet, so running it again
after any interruption finishes the job. Ranks are forked from one process that has imported PyTorch; a runner may ask
for spawned ones, which torch's elastic agent starts. A technique that raises, hangs, dies or runs out of memory costs
its own case, or all its cases where it hangs and the plan says so; the rest of its block is run again without it. Where
a job has several nodes, one launcher runs on each (``PACELINE_NODE``, ``PACELINE_NODES``, ``PACELINE_SESSION``,
``PACELINE_HOST``); the first keeps the books.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError
from paceline.base.families.family import load_family
from paceline.base.files.events import read_events
from paceline.base.root_cause import kind_of
from paceline.worker.events import EventLog, require_room
from paceline.worker.launches.attempt import Ending, merge, run_ranks
from paceline.worker.launches.blame import NO_RESULT, Blame, blame
from paceline.worker.launches.nodes import Lifeline, Meeting, Place, place_from_environment
from paceline.worker.launches.schedule import Schedule
from paceline.worker.launches.stopping import Progress
from paceline.worker.machine.foreign_load import is_disturbed
from paceline.worker.processes import fork_server, process

MAX_START_FAILURES = 2
NODE_LIMIT_S = 30.0
"""Longest wait for other nodes to say how their ranks ended once the head's have."""


class Job:
    """A job folder: what its plan asks for and what its event files already hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        self.blocks: dict[str, dict[str, Any]] = {b["block"]: b for b in self.plan["blocks"]}
        self.finished: set[tuple[int, str, str]] = set()
        """(launch, block, label) of every case that has a result or a failure."""
        self.quarantined: dict[tuple[str, str], str] = {}
        """(block, label) → why the technique is not tried again there."""
        self.hung: dict[str, str] = {}
        """Label → how it hung, where the plan asks not to wait for such a technique again."""
        self.progress = Progress(self.plan)
        self._proofs: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        """What ranks told of their proofs: key → rank → facts."""
        self.described = False
        """Whether a rank has told of its host."""
        self.attempts: dict[tuple[str, int], int] = defaultdict(int)
        self._offsets: dict[Path, int] = {}
        for name in ("logs", "attempts"):
            (folder / name).mkdir(exist_ok=True)
        for path in (folder / "attempts").glob("*.json"):
            group, launch, attempt = path.stem.rsplit("-", 2)
            key = (group, int(launch))
            self.attempts[key] = max(self.attempts[key], int(attempt) + 1)
        self.refresh()

    def refresh(self) -> list[dict[str, Any]]:
        """Read new events of all ranks and note which cases are finished; return the new events."""
        fresh: list[dict[str, Any]] = []
        for path in sorted(self.folder.glob("events-*.jsonl")):
            events, self._offsets[path] = read_events(path, self._offsets.get(path, 0))
            fresh += events
        for event in fresh:
            self.progress.take(event)
            if event["event"] == "proved":
                self._proofs[event["key"]][event["rank"]] = event["facts"]
            self.described = self.described or event["event"] == "host"
            if event["event"] in ("result", "case_failed"):
                self.finished.add((event["launch"], event["block"], event["label"]))
                if event.get("status") == "timeout" and self.plan.get("skip_after_hang"):
                    self.hung.setdefault(event["label"], event["reason"])
            if event["event"] == "case_failed" and event.get("quarantine"):
                self.quarantined[(event["block"], event["label"])] = event["reason"]
        return fresh

    def remaining(self, group: dict[str, Any], launch: int, taking: frozenset[str]) -> list[dict[str, Any]]:
        """Return those of the group's blocks that still lack cases in this launch, each with those cases only.

        Args:
            group: Of the plan.
            launch: Its number.
            taking: The blocks that take part in it.
        """
        left: list[dict[str, Any]] = []
        for name in group["blocks"]:
            if name not in taking:
                continue
            block = self.blocks[name]
            cases = [c for c in block["cases"] if (launch, name, c["label"]) not in self.finished]
            if cases:
                left.append({**block, "cases": cases})
        random.Random(f"{self.plan['seed']}/{group['group']}/{launch}").shuffle(left)
        return left

    def proofs(self, num_ranks: int) -> dict[str, list[dict[str, Any]]]:
        """Return what all of so many ranks have found in proofs, by key: facts in the order of ranks."""
        ranks = set(range(num_ranks))
        return {
            key: [found[r] for r in range(num_ranks)]
            for key, found in self._proofs.items()
            if found.keys() == ranks
        }

    def limit_s(self, context: str) -> float:
        """Return how long a rank may stay without a sign of life in a context."""
        block, _, stage = context.split("|") if context.count("|") == 2 else ("-", "-", "start")
        if stage == "end":
            return 60.0
        if block not in self.blocks:
            return float(self.plan["runner"]["limits"]["launch_s"])
        return float(self.blocks[block]["protocol"]["timeout_s"])


class Launcher:
    """Runs a job's launches one after another, on this host or as the head of several nodes.

    Args:
        folder: The job folder.
        meeting: Where the nodes of the job talk; None when this host is alone.
    """

    def __init__(self, folder: Path, meeting: Meeting | None = None) -> None:
        self.job = Job(folder)
        self.meeting = meeting
        self.events = EventLog(folder / "events-launcher.jsonl", launch=-1, attempt=-1, rank=-1)
        self._told: set[str] = set()

    def run(self) -> None:
        """Run every launch of every group (``schedule``)."""
        plan = self.job.plan
        fork_server.begin(plan)
        deadline = plan["runner"]["limits"]["run_s"]
        started = time.monotonic()
        for launch, group, taking in Schedule(plan, self.job.progress, self.events.emit).turns():
            if deadline is not None and time.monotonic() - started > deadline:
                self.events.emit("out_of_time", limit_s=deadline)
                return
            self._skip_quarantined(group, launch, taking)
            self._run_launch(group, launch, taking)
        self.events.emit("job_complete")

    def _run_launch(self, group: dict[str, Any], launch: int, taking: frozenset[str]) -> None:
        failures: list[Blame] = []
        while blocks := self.job.remaining(group, launch, taking):
            before = len(self.job.finished)
            found = self._attempt(group, launch, blocks)
            progressed = len(self.job.finished) > before
            failures = [] if progressed else [*failures, found or Blame(reason=NO_RESULT)]
            hopeless = len(failures) >= MAX_START_FAILURES or (failures and failures[-1].lasting)
            if hopeless and (left := self.job.remaining(group, launch, taking)):
                first, last = failures[0], failures[-1]
                reason = first.reason
                if kind_of(last.reason) != kind_of(first.reason):
                    reason += f"; when tried again: {last.reason}"
                for block in left:
                    for case in block["cases"]:
                        self._fail_case(launch, block["block"], case, "infrastructure", reason, first.detail)
                return
            self._skip_quarantined(group, launch, taking)

    def _attempt(self, group: dict[str, Any], launch: int, blocks: list[dict[str, Any]]) -> Blame | None:
        """Start a process group on the given blocks and wait for it; return why it failed, or None."""
        folder = self.job.folder
        key = (group["group"], launch)
        attempt = self.job.attempts[key]
        self.job.attempts[key] += 1
        work = folder / "attempts" / f"{group['group']}-{launch}-{attempt}.json"
        describe = launch == 0 or not self.job.described
        proofs = self.job.proofs(group["ranks"])
        work.write_text(json.dumps({"blocks": blocks, "describe_host": describe, "proofs": proofs}))
        self.events.emit("launch_begin", group=group["group"], launch=launch, attempt=attempt)
        started = time.monotonic()
        ending = self._on_all_nodes(group, launch, attempt)
        new = self.job.refresh()
        elapsed_s = time.monotonic() - started
        self.events.emit(
            "launch_end",
            group=group["group"],
            launch=launch,
            elapsed_s=elapsed_s,
            **self.job.progress.spent(blocks, elapsed_s),
            **_told_of(ending.load, blocks, new if self.meeting is None else ()),
        )
        self.job.refresh()  # a budget counts this launch, too
        if ending.well:
            return None
        require_room(folder)
        return self._blame(launch, new, ending)

    def _on_all_nodes(self, group: dict[str, Any], launch: int, attempt: int) -> Ending:
        """Run the ranks of an attempt, here and on other nodes where there are any."""
        if self.meeting is None:
            return run_ranks(self.job, group, launch, attempt)
        call = self.meeting.call(group["group"], group["ranks"], launch, attempt)
        ending = run_ranks(self.job, group, launch, attempt, self.meeting, call)
        others = self.meeting.wait_for_all(call, NODE_LIMIT_S)
        return merge(ending, others, call.num_nodes)

    def _blame(self, launch: int, new: list[dict[str, Any]], ending: Ending) -> Blame:
        """Turn a failed attempt into the failure of the case that caused it; return why it failed."""
        found = blame(new, ending)
        block, label, stage = [*found.context.split("|"), "-", "-", "-"][:3]
        for case in self.job.blocks.get(block, {"cases": ()})["cases"]:
            blamed = label in ("-", case["label"])
            if blamed and (launch, block, case["label"]) not in self.job.finished:
                reason = f"{found.reason} (stage: {stage})"
                self._fail_case(launch, block, case, found.status, reason, found.detail)
        return found

    def _skip_quarantined(self, group: dict[str, Any], launch: int, taking: frozenset[str]) -> None:
        for block in self.job.remaining(group, launch, taking):
            for case in block["cases"]:
                why = self.job.quarantined.get((block["block"], case["label"]))
                reason = f"failed in an earlier launch: {why}"
                if why is None and (why := self.job.hung.get(case["label"])) is not None:
                    reason = f"it hung at another point, and --keep-going tries this one too: {why}"
                if why is not None:
                    self._fail_case(launch, block["block"], case, "skipped", reason)

    def _fail_case(
        self,
        launch: int,
        block: str,
        case: dict[str, Any],
        status: str,
        reason: str,
        detail: Any = None,
    ) -> None:
        """Write a case's failure; anything but missing infrastructure keeps it from being tried again."""
        self.events.emit(
            "case_failed",
            block=block,
            case_id=case["case_id"],
            label=case["label"],
            status=status,
            reason=reason,
            detail=detail,
            quarantine=status in ("timeout", "crashed", "out_of_memory", "refused"),
            launch=launch,
        )
        if status == "infrastructure" and (kind := kind_of(reason)) not in self._told:
            self._told.add(kind)  # once, for who started the job by hand or reads the launcher's log
            print(f"{status}: {reason}", file=sys.stderr, flush=True)
        self.job.finished.add((launch, block, case["label"]))
        self.job.refresh()


def _told_of(
    load: dict[str, Any] | None, blocks: list[dict[str, Any]], events: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what the end of a launch says of others' load, and of which blocks where they were disturbed by it.

    Args:
        load: What others took of the launch; None where nobody can tell.
        blocks: Of the launch.
        events: Of its ranks. A block that tells whether somebody waited for a core while it ran is judged by that:
            ranks that start, import and meet wait for cores, too, and nothing is timed then.
    """
    if load is None:
        return {}
    waiting = {e["block"]: e.get("waiting") for e in events if e["event"] == "block_end"}
    reached = [
        b["block"]
        for b in blocks
        if is_disturbed(load, waiting=waiting.get(b["block"])) and not _elsewhere(b)
    ]
    return {"load": load, **({"disturbed": reached} if reached else {})}


def _elsewhere(block: dict[str, Any]) -> bool:
    family = load_family(block["family"])
    return family.is_elsewhere(str(block["params"][family.operation_key]), block["params"])


def follow(folder: Path, meeting: Meeting) -> None:
    """Start this node's ranks whenever the head calls for them, until it has finished."""
    meeting.join()
    job = Job(folder)
    fork_server.begin(job.plan)
    groups = {group["group"]: group for group in job.plan["groups"]}
    known: set[str] = set()
    while (call := meeting.next_call(known)) is not None:
        known.add(call.name)
        if call.node < call.num_nodes:
            run_ranks(job, groups[call.group], call.launch, call.attempt, meeting, call)


def run_job(folder: Path, place: Place) -> None:
    """Execute a job folder from this place.

    Raises:
        InfrastructureError: The disk is full, or nodes are missing.
    """
    if place.num_nodes == 1:
        if place.session:
            Lifeline(Meeting(folder, place)).start()
        Launcher(folder).run()
        return
    meeting = Meeting(folder, place)
    Lifeline(meeting).start()
    if place.node:
        follow(folder, meeting)
        return
    runner = json.loads((folder / "plan.json").read_text())["runner"]
    try:
        meeting.gather(runner["limits"]["launch_s"], runner["env"].get("PACELINE_CONTROL_INTERFACE"))
        Launcher(folder, meeting).run()
    finally:
        meeting.end()


def main(arguments: list[str]) -> int:
    """Run a job folder; exit 0 when every case has a result or a reason."""
    if os.environ.get("PACELINE_DIE_WITH_PARENT"):
        process.die_with_parent()
    place = place_from_environment(os.environ)
    process.scrub_environment()
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, _asked_to_end)
    try:
        run_job(Path(arguments[0]).resolve(), place)
    except InfrastructureError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        fork_server.end()
    return 0


def _asked_to_end(number: int, frame: object) -> None:
    """End as from within, so that ranks end and networks are taken down."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
