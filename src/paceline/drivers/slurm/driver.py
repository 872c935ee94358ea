"""The Slurm driver: a job array, one task a share of the run, followed by asking the scheduler.

What runs is written before it is submitted, and what was submitted is written down at once, so a controller that dies
is followed by another (``run --resume``) that takes over the tasks wherever they are. An ending that is no technique's
fault (a lost node, a time limit) becomes an ``infrastructure`` failure of every case that it left without a result.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.base.errors import InfrastructureError, PrerequisiteError
from paceline.base.redaction import redact
from paceline.drivers.shares import append_event, fail_missing, make_shares, missing_cases, share_folders
from paceline.drivers.slurm.script import LOGS, Request, job_name, render
from paceline.drivers.slurm.states import (
    DONE,
    FAILED,
    LOST,
    NEVER_BEGUN,
    NOT_STARTED,
    REASONS,
    REQUEUED_TOO_OFTEN,
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    TaskState,
    read_completion_log,
    read_sacct,
    read_scontrol,
    read_settings,
    read_squeue,
    waiting_for,
)
from paceline.records.store.storage import resume_command
from paceline.spec import content

TICKET = "slurm.json"
STOP_FILE = "stop"
COMMAND_LIMIT_S = 60.0
CANCEL_LIMIT_S = 120.0
MAX_LOST = 5
"""Questions without an answer after which a task counts as lost: logs are written a little later."""
LOG_TAIL_BYTES = 3000


def ask(*command: str) -> str:
    """Run one of Slurm's commands and return what it printed.

    Raises:
        InfrastructureError: It failed or did not answer.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{command[0]} did not answer within {COMMAND_LIMIT_S:g} s") from error
    if done.returncode:
        raise InfrastructureError(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class SlurmDriver:
    """Runs a job folder as a job array."""

    def start(self, job: Path) -> SlurmExecution:
        """Submit what is missing, or take over what an earlier controller submitted.

        Raises:
            PrerequisiteError: This machine has no Slurm.
            InfrastructureError: The scheduler refused the job.
        """
        if shutil.which("sbatch") is None:
            raise PrerequisiteError(
                "the runner needs Slurm, and there is no sbatch here",
                fix="run on a login node of the cluster (on Debian: apt-get install slurm-client)",
            )
        plan = json.loads((job / "plan.json").read_text())
        settings = plan["runner"]["slurm"]
        make_shares(job, settings["array_tasks"])
        run_id = json.loads((job / "job.json").read_text())["run_id"]
        ticket = _open_ticket(job, run_id) or _submit(job, run_id, plan)
        return SlurmExecution(job, settings, ticket)


def _open_ticket(job: Path, run_id: str) -> dict[str, Any] | None:
    """Return what a controller that died had submitted, also when it died before it wrote it down."""
    try:
        ticket: dict[str, Any] = json.loads((job / TICKET).read_text())
    except (OSError, ValueError):
        ticket = {}
    if ticket and not ticket["closed"]:
        return ticket
    queued = ask("squeue", "--noheader", "--me", f"--name={job_name(run_id)}", "--format=%F").split()
    if not queued or queued[-1] == ticket.get("job_id"):
        return None
    shares = [int(folder.name) for folder in share_folders(job)]
    return _write_ticket(job, {"job_id": queued[-1], "shares": shares, "closed": False})


def _write_ticket(job: Path, ticket: dict[str, Any]) -> dict[str, Any]:
    temporary = job / f".{TICKET}"
    temporary.write_text(json.dumps(ticket))
    temporary.replace(job / TICKET)
    return ticket


def _submit(job: Path, run_id: str, plan: Mapping[str, Any]) -> dict[str, Any]:
    folders = share_folders(job)
    shares = [int(folder.name) for folder in folders if missing_cases(folder)]
    if not shares:
        return {"job_id": None, "shares": [], "closed": True}
    for folder in folders:
        (folder / STOP_FILE).unlink(missing_ok=True)
    (job / LOGS).mkdir(exist_ok=True)
    request = Request(
        run_id=run_id,
        job=job,
        settings=plan["runner"]["slurm"],
        device=plan["runner"]["device"],
        shares=shares,
        most_s=plan["estimate"]["most_s"],
    )
    script = render(request, content.batch_template().read_text())
    path = job / LOGS / f"job-{len(list((job / LOGS).glob('job-*.sbatch')))}.sbatch"
    path.write_text(script)
    job_id = ask("sbatch", "--parsable", str(path)).strip().split(";")[0]
    ticket = _write_ticket(job, {"job_id": job_id, "shares": shares, "closed": False})
    version = ask("sbatch", "--version").strip()
    _tell(job, "submitted", job_id=job_id, shares=shares, version=version, script=redact(script))
    return ticket


def _tell(job: Path, event: str, **data: Any) -> None:
    append_event(job / "events-scheduler.jsonl", {"event": event, "time_s": time.time(), **data})


class SlurmExecution:
    """A job array, followed until every task has ended."""

    def __init__(
        self,
        job: Path,
        settings: Mapping[str, Any],
        ticket: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._settings = settings
        self._ticket = dict(ticket)
        self._id = str(ticket["job_id"])
        self._waiting = set(ticket["shares"])
        self._seen: dict[int, TaskState] = {}
        self._told_waiting: dict[str, int] = {}
        self._clock = clock
        self._queued_s: dict[int, float] = {}
        """Since when a task waits for nodes."""
        self._asked_lost: dict[int, int] = {}
        self._abandoned = False
        """True when the scheduler does not answer: tasks go on, and the ticket stays open for another controller."""
        self._code = 0
        self._next_s = 0.0
        self._answered_s = time.monotonic()

    def poll(self) -> int | None:
        """Ask the scheduler when it is time; return 0 or the worst exit code once all tasks have ended.

        Raises:
            InfrastructureError: The scheduler has not answered for longer than the profile allows.
        """
        now = time.monotonic()
        if self._waiting and now >= self._next_s:
            self._next_s = now + self._settings["poll_s"]
            try:
                self._look()
                self._answered_s = time.monotonic()
            except InfrastructureError as error:
                if time.monotonic() - self._answered_s > self._settings["unreachable_s"]:
                    self._abandoned = True
                    again = resume_command(self._job.name, self._job.parents[1])
                    raise InfrastructureError(f"{error}\n  the tasks go on; fix: {again}") from error
        return None if self._waiting else self._code

    def stop(self) -> None:
        """Cancel what has not ended, wait until nothing of it is in the queue, and close the ticket."""
        if self._abandoned:
            return
        if self._waiting:
            for share in self._waiting:
                (self._job / "shares" / str(share) / STOP_FILE).touch()
            ask("scancel", self._id)
            deadline = time.monotonic() + CANCEL_LIMIT_S
            while self._queue() and time.monotonic() < deadline:
                time.sleep(0.5)
            _tell(self._job, "task_end", job_id=self._id, state="CANCELLED", shares=sorted(self._waiting))
        if self._ticket["job_id"] is not None:
            _write_ticket(self._job, {**self._ticket, "closed": True})

    def log(self) -> str:
        """Return the end of what the latest tasks printed."""
        paths = sorted((self._job / LOGS).glob("*.out"), key=lambda p: p.stat().st_mtime)[-3:]
        return "\n".join(p.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip() for p in paths)

    def _queue(self) -> dict[int, TaskState]:
        """Return the tasks that are in the queue, and nothing for a job that it does not know any more."""
        try:
            text = ask("squeue", "--noheader", "--array", f"--jobs={self._id}", f"--format={SQUEUE_FORMAT}")
        except InfrastructureError as error:
            if "Invalid job id" in str(error):
                return {}
            raise
        return read_squeue(text)

    def _look(self) -> None:
        queue = self._queue()
        gone = [task for task in self._waiting if task not in queue or queue[task].final]
        again = [t for t in self._waiting if self._began_again(t, queue.get(t))]
        found = self._remembered() if again else {}
        for task in again:
            if task in found and (found[task].restarts or 0) > self._settings["max_requeues"]:
                ask("scancel", f"{self._id}_{task}")
                self._settle(task, TaskState(state=REQUEUED_TOO_OFTEN))
        self._seen |= queue
        self._tell_waiting(queue)
        for task in self._overdue(queue):
            self._settle(task, replace(queue[task], state=NOT_STARTED))
        if gone:
            found = self._final_states(gone)
            for task in gone:
                if task not in found:
                    self._miss(task)
                elif found[task].final:
                    self._settle(task, found[task])

    def _tell_waiting(self, queue: Mapping[int, TaskState]) -> None:
        """Tell what the tasks wait for, whenever that is something else than before."""
        reasons = waiting_for(queue[task] for task in self._waiting if task in queue)
        if reasons != self._told_waiting:
            self._told_waiting = reasons
            _tell(self._job, "waiting", job_id=self._id, reasons=reasons)

    def _overdue(self, queue: Mapping[int, TaskState]) -> list[int]:
        """Return the tasks that have waited for longer than the profile allows; tasks behind others do not wait yet."""
        now, limit_s = self._clock(), self._settings.get("pending_s")
        queued = {t for t in self._waiting if t in queue and waiting_for([queue[t]])}
        self._queued_s = {t: self._queued_s.get(t, now) for t in queued}
        if limit_s is None:
            return []
        return [task for task, since_s in self._queued_s.items() if now - since_s > limit_s]

    def _miss(self, task: int) -> None:
        """Note that nothing knows of a task; its results may say that it ended well all the same."""
        self._asked_lost[task] = self._asked_lost.get(task, 0) + 1
        if self._asked_lost[task] >= MAX_LOST:
            folder = self._job / "shares" / str(task)
            self._settle(task, TaskState(state=LOST if missing_cases(folder) else DONE))

    def _began_again(self, task: int, now: TaskState | None) -> bool:
        """Tell whether a task waits that ran before, or may have, for all that this controller has seen."""
        before = self._seen.get(task)
        return now is not None and now.state == "PENDING" and (before is None or before.state != "PENDING")

    def _remembered(self) -> dict[int, TaskState]:
        """Return the tasks that the scheduler has in its memory, where they stay for some minutes after their end."""
        try:
            return read_scontrol(ask("scontrol", "show", "job", "--oneliner", self._id))
        except InfrastructureError as error:
            if "Invalid job id" in str(error):
                return {}
            raise

    def _final_states(self, tasks: Sequence[int]) -> dict[int, TaskState]:
        """Return how tasks ended: from the controller's memory, the accounting, or the completion log."""
        found = self._remembered()
        if all(task in found for task in tasks):
            return found
        cluster = read_settings(ask("scontrol", "show", "config"))
        if cluster.get("AccountingStorageType", "").endswith("/slurmdbd"):
            command = ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={self._id}")
            found = read_sacct(ask(*command, f"--format={SACCT_FORMAT}"), self._id) | found
        elif cluster.get("JobCompType") == "jobcomp/filetxt":
            log = Path(cluster.get("JobCompLoc", ""))
            if log.is_file():
                found = read_completion_log(log.read_text(errors="replace"), self._id) | found
        return found

    def _settle(self, task: int, state: TaskState) -> None:
        """Note how a task ended; what it left without a result fails for that reason."""
        self._waiting.discard(task)
        folder = self._job / "shares" / str(task)
        facts = {"exit_code": state.exit_code, "nodes": state.nodes, "restarts": state.restarts}
        _tell(self._job, "task_end", job_id=self._id, shares=[task], state=state.state, **facts)
        if state.state == FAILED:
            self._code = max(self._code, int((state.exit_code or "1:0").split(":")[0]) or 1)
        if state.state not in REASONS:
            return
        if state.state in NEVER_BEGUN:
            ask("scancel", f"{self._id}_{task}")
        (folder / STOP_FILE).touch()
        where = f"task {self._id}_{task}" + (f" on {state.nodes}" if state.nodes else "")
        why = f": {state.why}" if state.state in NEVER_BEGUN and state.why not in ("", "None") else ""
        reason = f"{state.state}: {REASONS[state.state]}{why} ({where})"
        fail_missing(folder, folder / "events-scheduler.jsonl", reason)
