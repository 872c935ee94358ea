"""What Slurm's commands say about tasks, as data: text in, states out. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

DONE = "COMPLETED"
LOST = "LOST"
"""Nothing knows of the task any more, neither the queue nor any log."""
HELD = "HELD"
REQUEUED_TOO_OFTEN = "REQUEUED_TOO_OFTEN"
IMPOSSIBLE = "IMPOSSIBLE"
NOT_STARTED = "NOT_STARTED"
FAILED = "FAILED"

REASONS: Mapping[str, str] = {
    "OUT_OF_MEMORY": "the task needed more memory than the nodes gave it",
    "TIMEOUT": "the task reached its time limit",
    "DEADLINE": "the task's deadline passed",
    "NODE_FAIL": "a node of the task failed",
    "PREEMPTED": "the task had to make room for others",
    "CANCELLED": "somebody cancelled the task",
    "BOOT_FAIL": "a node of the task did not boot",
    "REVOKED": "another cluster took the task",
    LOST: "the scheduler forgot the task, and no log holds its end",
    HELD: "the scheduler holds the task back after it could not be started",
    REQUEUED_TOO_OFTEN: "the task was queued again more often than the profile allows",
    IMPOSSIBLE: "the cluster can never start the task as it was submitted",
    NOT_STARTED: "the task was not started within pending_seconds",
}
"""Endings that are nobody's result: the reason code, and its sentence."""

NEVER_BEGUN = (HELD, IMPOSSIBLE, NOT_STARTED)
"""Endings of tasks that are still in the queue."""

_FINAL = {*REASONS, DONE, FAILED}
_HELD_REASONS = ("launch_failed_requeued_held", "JobHoldMaxRequeue", "JobHeldAdmin", "JobHeldUser")
_HELD_STATES = ("REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "LAUNCH_FAILED", "RECONFIG_FAIL")
_IMPOSSIBLE = re.compile(
    r"PartitionTimeLimit|BadConstraints|DependencyNeverSatisfied"
    r"|Invalid(?:QOS|Account)|AccountNotAllowed|QOSNotAllowed|ReservationDeleted|MaxMemPerLimit"
    # a single job is larger than its account, or its quality of service, lets any one be
    r"|(?:Assoc|QOS)(?:MaxWallDurationPerJobLimit|Max\w+Per(?:Job|Node)(?:Limit)?|Max\w+MinutesPerJob(?:Limit)?)"
    r"|QOSMin\w+(?:Limit|NotSatisfied)?"
)
"""Reasons that no waiting ends (Slurm's manual, "Job Reason Codes"): somebody has to change the job or the cluster.
``PartitionNodeLimit`` is none: nodes that are down for a while give it, too."""
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task of an array, as some command sees it."""

    state: str
    """Slurm's own word, without what follows it (``CANCELLED by 0``)."""
    why: str = ""
    """Slurm's reason for a state of waiting."""
    nodes: str = ""
    exit_code: str | None = None
    """``CODE:SIGNAL``."""
    restarts: int | None = None

    @property
    def final(self) -> bool:
        """Whether the task has ended, or will not go on by itself."""
        return self.state in _FINAL


def _state(word: str, why: str = "") -> str:
    """Return one word for a state: what waits for ever has one of its own; unknown words count as still going on."""
    plain = word.split(maxsplit=1)[0].rstrip("+") if word.split() else ""
    if plain in _HELD_STATES or (plain == "PENDING" and why in _HELD_REASONS):
        return HELD
    if plain == "PENDING" and _IMPOSSIBLE.fullmatch(why):
        return IMPOSSIBLE
    return plain


def waiting_for(states: Iterable[TaskState]) -> dict[str, int]:
    """Count the tasks that wait in the queue by the scheduler's reason, without those behind others of their array."""
    whys = (s.why for s in states if s.state == "PENDING" and s.why != "JobArrayTaskLimit")
    return dict(sorted(Counter(why or "None" for why in whys).items()))


def expand(spec: str) -> list[int]:
    """Return the numbers of a specification of tasks, such as ``0-3,7%2``."""
    numbers: list[int] = []
    for part in spec.strip("[]").split("%")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            numbers += range(int(first), int(last or first) + 1)
    return numbers


SQUEUE_FORMAT = "%F|%K|%T|%r|%N"


def read_squeue(text: str) -> dict[int, TaskState]:
    """Return the states of an array's tasks from ``squeue --array --format`` with ``SQUEUE_FORMAT``."""
    found: dict[int, TaskState] = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 5:
            for task in expand(parts[1]):
                state = _state(parts[2], parts[3])
                found[task] = TaskState(state=state, why=parts[3], nodes=parts[4])
    return found


def read_scontrol(text: str) -> dict[int, TaskState]:
    """Return the states of an array's tasks from ``scontrol show job --oneliner``."""
    found: dict[int, TaskState] = {}
    for line in text.splitlines():
        pairs = dict(_PAIR.findall(line))
        for task in expand(pairs.get("ArrayTaskId", "")):
            nodes = pairs.get("NodeList", "")
            found[task] = TaskState(
                state=_state(pairs.get("JobState", ""), pairs.get("Reason", "")),
                why=pairs.get("Reason", ""),
                nodes="" if nodes == "(null)" else nodes,
                exit_code=pairs.get("ExitCode"),
                restarts=int(pairs.get("Restarts") or 0),
            )
    return found


SACCT_FORMAT = "JobID,State,ExitCode,NodeList"


def read_sacct(text: str, job_id: str) -> dict[int, TaskState]:
    """Return the states of an array's tasks from ``sacct --parsable2 --allocations`` with ``SACCT_FORMAT``."""
    found: dict[int, TaskState] = {}
    for line in text.splitlines():
        parts = line.split("|")
        array, _, spec = parts[0].partition("_")
        if len(parts) == 4 and array == job_id:
            for task in expand(spec):
                found[task] = TaskState(state=_state(parts[1]), nodes=parts[3], exit_code=parts[2])
    return found


def read_completion_log(text: str, job_id: str) -> dict[int, TaskState]:
    """Return the states of an array's tasks from the log of ``jobcomp/filetxt``.

    Of several lines about one task, which was queued again, the last counts.
    """
    found: dict[int, TaskState] = {}
    for line in text.splitlines():
        pairs = dict(_PAIR.findall(line))
        if pairs.get("ArrayJobId") == job_id:
            for task in expand(pairs.get("ArrayTaskId", "")):
                found[task] = TaskState(
                    state=_state(pairs.get("JobState", "")),
                    nodes=pairs.get("NodeList", ""),
                    exit_code=pairs.get("ExitCode"),
                )
    return found


def read_settings(text: str) -> dict[str, str]:
    """Return the cluster's settings from ``scontrol show config``."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
