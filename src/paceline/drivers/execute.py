"""The run loop: starts a job through its driver, follows its events, and writes the record as they come."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import InfrastructureError, UserError
from paceline.base.files.events import read_events
from paceline.base.redaction import redact_source
from paceline.base.root_cause import how_ended, last_words
from paceline.drivers.collect import Collector, make_run
from paceline.drivers.driver import Driver
from paceline.drivers.shares import share_folders
from paceline.records.format.record import Event
from paceline.records.format.record_file import files_beside
from paceline.records.identity import utc
from paceline.records.store.folder import is_recorded, partial_path
from paceline.records.store.record_writer import RecordWriter
from paceline.records.store.storage import check_writable, resume_command, storage_errors
from paceline.spec.content import sha256_file
from paceline.spec.plans.plan import Plan, expected_results

POLL_S = 0.1
JOBS = "jobs"
ARTIFACTS = "artifacts"
"""Folder of a job in which ranks leave files that go with the record."""
DISPOSABLE = ("engine", "baselines", "user", "attempts", "nodes", ARTIFACTS)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    run_id: str
    path: Path | None
    """The sealed record; None when the run was interrupted and can be resumed."""
    statuses: Mapping[str, int]
    num_missing: int
    log: str = ""
    interrupted: bool = False
    job: Path | None = None
    measuring_s: float = 0.0
    notes: list[str] = field(default_factory=list)


class EventTail:
    """Reads the event files of a job from where it stopped last time."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._offsets: dict[Path, int] = {}

    def read(self) -> list[dict[str, Any]]:
        """Return new complete events of all files, oldest first."""
        events: list[dict[str, Any]] = []
        for folder in (self._job, *share_folders(self._job)):
            share = {} if folder == self._job else {"share": int(folder.name)}
            for path in sorted(folder.glob("events-*.jsonl")):
                found, self._offsets[path] = read_events(path, self._offsets.get(path, 0))
                events += [{**event, **share} for event in found]
        return sorted(events, key=lambda e: e.get("time_s") or 0.0)


class Recorder:
    """Feeds events to a collector and its lines to a record file, which begins with the host's facts."""

    def __init__(self, results: Path, plan: Plan, facts: Mapping[str, Any], *, resume: bool) -> None:
        self._results = results
        self._plan = plan
        self._facts = facts
        self._resume = resume
        self._waiting: list[Mapping[str, Any]] = []
        self._ended: set[str] = set()
        """Suites whose end was told."""
        self.writer: RecordWriter | None = None
        self.collector = Collector(plan, facts["run_id"])

    def take(self, event: Mapping[str, Any]) -> None:
        """Record one event; events from before the host is known wait for it."""
        if event.get("event") == "container":
            self.collector.enclose(event)
        if self.writer is None and event.get("event") != "host":
            self._waiting.append(event)
            return
        lines = list(self.collector.lines(event))
        writer = self._open()
        if lines:
            writer.write(*lines)

    def _open(self) -> RecordWriter:
        if self.writer is None:
            run = make_run(self._plan, self._facts, self.collector.host, self.collector.container)
            resume = self._resume and partial_path(self._results, run).exists()
            self.writer = RecordWriter(self._results, run, resume=resume)
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                self.take(event)
        return self.writer

    def note(self, kind: Any, data: dict[str, Any]) -> None:
        """Add an event of the controller's own; before the host is known there is no record yet."""
        if self.writer is None and self.collector.host is None:
            return
        self._open().write(Event(kind=kind, at=utc(), run_id=self._facts["run_id"], data=data))

    def finish(self, job: Path) -> Path:
        """Put the files that go with the record beside it, and seal it."""
        writer = self._open()
        beside = files_beside(writer.final)
        for name in sorted(self.collector.artifacts):
            places = (folder / ARTIFACTS / name for folder in (job, *share_folders(job)))
            source = next((p for p in places if p.is_file()), job / ARTIFACTS / name)
            if source.is_symlink() or source.parent.is_symlink() or not source.is_file():
                self.note("unreadable", {"why": f"the job has no file {ARTIFACTS}/{name}"})
                continue
            if sha256_file(source) != (expected := self.collector.digests.get(name, sha256_file(source))):
                self.note(
                    "unreadable", {"why": f"{ARTIFACTS}/{name} was changed: expected sha256 {expected}"}
                )
                continue
            with storage_errors(beside / name, run_id=self._facts["run_id"], root=self._results):
                beside.mkdir(exist_ok=True)
                shutil.copyfile(source, beside / name, follow_symlinks=False)
        return writer.seal()

    def abandon(self) -> None:
        """Leave the record partial, for ``--resume``."""
        if self.writer is not None:
            self.writer.abandon()

    def ended_suite(self, event: Mapping[str, Any]) -> tuple[str, Path] | None:
        """Return the suite whose end an event tells, and the record so far.

        None where results of it are missing, or where it was told before: by another share, or by the launcher of an
        attempt that was interrupted.
        """
        if event.get("event") != "suite_complete" or self.writer is None or event.get("suite") in self._ended:
            return None
        blocks = [b for b in self._plan.blocks if b["suite"] == event.get("suite")]
        names = {b["block"] for b in blocks}
        done = sum(block in names for _, block, _ in self.collector.done)
        complete = blocks and done == expected_results(blocks, self.collector.stopped)
        if not complete:
            return None
        self._ended.add(blocks[0]["suite"])
        return blocks[0]["suite"], self.writer.partial

    @property
    def num_missing(self) -> int:
        """Results that the plan asks for and that have not come; those that wait for their host's facts have."""
        waiting = {
            (e["launch"], str(e.get("block")), str(e.get("label")))
            for e in self._waiting
            if e.get("event") in ("result", "case_failed") and isinstance(e.get("launch"), int)
        }
        return self._plan.results_after(self.collector.stopped) - len(self.collector.done | waiting)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a flag for the time of a run."""
    asked = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    try:
        previous = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller handles signals
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def execute(
    job: Path,
    plan: Plan,
    facts: Mapping[str, Any],
    results: Path,
    driver: Driver,
    on_event: Callable[[Mapping[str, Any]], None],
    *,
    resume: bool = False,
    on_suite: Callable[[str, Path], None] = lambda suite, record: None,
) -> Outcome:
    """Run a job folder to its end and record it.

    Ctrl-C stops the job, keeps what finished in a partial record, and leaves the job folder for ``--resume``. Where the
    plan's suites are measured one by one, ``on_suite`` is told each that is complete, with the record so far.

    Raises:
        InfrastructureError: The launcher failed before it could say anything, or the disk is full.
    """
    recorder = Recorder(results, plan, facts, resume=resume)
    tail = EventTail(job)
    started = time.monotonic()

    def drain() -> None:
        for event in tail.read():
            recorder.take(event)
            on_event(event)
            if (complete := recorder.ended_suite(event)) is not None:
                with suppress(Exception):  # what cannot be shown now costs no measurement
                    on_suite(*complete)

    with _interruptible() as interrupted:
        execution = driver.start(job)
        try:
            while (code := execution.poll()) is None:
                drain()
                if interrupted():
                    break
                time.sleep(POLL_S)
        finally:
            execution.stop()
        drain()
        outcome = Outcome(
            run_id=facts["run_id"],
            path=None,
            statuses=recorder.collector.statuses,
            num_missing=recorder.num_missing,
            interrupted=interrupted(),
            job=job,
            log=execution.log(),
            measuring_s=time.monotonic() - started,
        )
        if interrupted():
            recorder.note("interrupted", {"missing": recorder.num_missing})
            recorder.abandon()
            return outcome
        if code not in (0, None) and recorder.num_missing:
            check_writable(results, run_id=facts["run_id"])
            recorder.note("interrupted", {"missing": recorder.num_missing, "exit_code": code})
            recorder.abandon()
            raise _ended_early(int(code or 0), outcome, results)
        outcome.path = recorder.finish(job)
    tidy(job)
    return outcome


def _ended_early(code: int, outcome: Outcome, results: Path) -> InfrastructureError:
    """Return what to raise where a launcher ended before its results were there."""
    words = last_words(outcome.log)
    return InfrastructureError(
        f"the launcher {how_ended(code)}{f': {words}' if words else ''}; "
        f"{number_of(outcome.num_missing, 'result is', 'results are')} missing\n"
        f"{redact_source(outcome.log.strip())}\n"
        f"  fix: {resume_command(outcome.run_id, results)}"
    )


def tidy(job: Path) -> None:
    """Remove what a sealed run no longer needs from its job folder; plan and logs stay."""
    for folder in (*share_folders(job), job):
        for name in DISPOSABLE:
            if (folder / name).is_symlink():
                (folder / name).unlink()
            shutil.rmtree(folder / name, ignore_errors=True)
        for pattern in ("events-*.jsonl", "trace-*.bin"):
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)


def collect_job(
    job: Path, plan: Plan, facts: Mapping[str, Any], results: Path, *, allow_partial: bool = False
) -> Outcome:
    """Make a record of a job folder that was executed elsewhere.

    Args:
        job: The folder.
        plan: Its plan.
        facts: What was known when it was exported.
        results: The store.
        allow_partial: Seal the record although results are missing.

    Raises:
        UserError: It holds no results, or not all and ``allow_partial`` was not asked for.
    """
    if is_recorded(results, facts["run_id"]):
        raise UserError(f"run {facts['run_id']} was already recorded", where=str(results))
    events = EventTail(job).read()
    if not any(e.get("event") in ("host", "result", "case_failed") for e in events):
        raise UserError(
            "the job folder holds no results",
            where=str(job),
            fix=f"sh {job}/run.sh on the machine to measure",
        )
    recorder = Recorder(results, plan, facts, resume=True)
    for event in events:
        recorder.take(event)
    missing = recorder.num_missing
    if missing and not allow_partial:
        recorder.abandon()
        raise UserError(
            f"{missing} of {number_of(plan.results_after(recorder.collector.stopped), 'result')} are missing: "
            "the job has not ended",
            where=str(job),
            fix=f"sh {job}/run.sh does the rest; or collect with --allow-partial, after which nothing can be added",
        )
    return Outcome(
        run_id=facts["run_id"],
        path=recorder.finish(job),
        statuses=recorder.collector.statuses,
        num_missing=missing,
        job=job,
    )
