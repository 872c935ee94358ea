"""One attempt at a process group on this node: its ranks, watched, and how they ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Protocol

from paceline.base.errors import InfrastructureError, PacelineError
from paceline.base.root_cause import crash_site, lost_peer, read_tail, sentence, traceback_of
from paceline.worker.launches.nodes import Call, Meeting, interface_towards
from paceline.worker.launches.watchdog import RankReport, Watchdog, inspect
from paceline.worker.machine import foreign_load
from paceline.worker.processes import fork_server
from paceline.worker.processes.needs import need_torch
from paceline.worker.ranks import entry

_now_ns = time.monotonic_ns
ECHO_S = 5.0
"""Time that ranks have to notice that ranks of another node are gone, before they are ended."""
STACK_BYTES = 1 << 20
START_ERRORS = (OSError, EOFError, RuntimeError, ImportError, ValueError, SubprocessError, PacelineError)
"""What keeps a group from starting; others, such as being asked to end, end the launcher."""


class WatchedJob(Protocol):
    """What an attempt needs of a job."""

    @property
    def plan(self) -> dict[str, Any]:
        """What to run, and where."""
        ...

    @property
    def folder(self) -> Path:
        """The job folder."""
        ...

    def limit_s(self, context: str) -> float:
        """Return how long a rank may stay without a sign of life in a context."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the ranks of an attempt ended; it crosses between nodes as JSON."""

    dead: dict[int, int] = field(default_factory=dict)
    """Exit codes of ranks that failed."""
    trouble: str | None = None
    """Why the group could not be started."""
    traceback: str | None = None
    """Of the trouble."""
    hang_limit_s: float | None = None
    """The limit that a stage exceeded."""
    reports: list[RankReport] = field(default_factory=list)
    killed_for_memory: bool = False
    logs: dict[int, str] = field(default_factory=dict)
    """The end of what ranks that failed have printed in this attempt."""
    load: dict[str, Any] | None = None
    """What others took of the machine (``machine.foreign_load``); of several nodes the most disturbed one's."""

    @property
    def well(self) -> bool:
        """Whether nothing failed."""
        return not self.dead and self.trouble is None and self.hang_limit_s is None


def merge(own: Ending, others: Mapping[int, Mapping[str, Any]], num_nodes: int) -> Ending:
    """Join what all nodes say of an attempt; a node that says nothing is trouble of its own."""
    merged = own
    for node in range(1, num_nodes):
        if node not in others:
            merged = replace(merged, trouble=merged.trouble or f"node {node} fell silent")
            continue
        told = others[node]
        hang = merged.hang_limit_s if merged.hang_limit_s is not None else told["hang_limit_s"]
        trouble, traceback = merged.trouble, merged.traceback
        if told["trouble"] and (trouble is None or (lost_peer(trouble) and not lost_peer(told["trouble"]))):
            trouble, traceback = f"node {node}: {told['trouble']}", told["traceback"]
        merged = Ending(
            dead=merged.dead | {int(rank): code for rank, code in told["dead"].items()},
            trouble=trouble,
            traceback=traceback,
            hang_limit_s=hang,
            reports=[*merged.reports, *(RankReport(**report) for report in told["reports"])],
            killed_for_memory=merged.killed_for_memory or told["killed_for_memory"],
            logs=merged.logs | {int(rank): log for rank, log in told["logs"].items()},
            load=foreign_load.worst([merged.load, told["load"]]),
        )
    return merged


class PeerWatch(threading.Thread):
    """Ends this node's ranks when those of another node failed and these have not noticed."""

    def __init__(self, meeting: Meeting, call: Call, watchdog: Watchdog) -> None:
        super().__init__(name="peer-watch", daemon=True)
        self._meeting, self._call, self._watchdog = meeting, call, watchdog
        self._finished = threading.Event()
        self.intervened = False

    def run(self) -> None:
        """Poll until stopped."""
        while not self._finished.wait(0.2):
            told = self._meeting.told(self._call).values()
            if any(t["dead"] or t["trouble"] or t["hang_limit_s"] is not None for t in told):
                if not self._finished.wait(ECHO_S):
                    self.intervened = True
                    self._watchdog.kill()
                return

    def stop(self) -> None:
        """End the watch."""
        self._finished.set()
        self.join()


def run_ranks(
    job: WatchedJob,
    group: dict[str, Any],
    launch: int,
    attempt: int,
    meeting: Meeting | None = None,
    call: Call | None = None,
) -> Ending:
    """Run this node's ranks of an attempt to their end; tell the other nodes where there are any."""
    ranks = meeting.place.ranks(group["ranks"]) if meeting else range(group["ranks"])
    started_ns = _now_ns()
    out_of_memory = _oom_kills()
    watchdog = Watchdog(job.folder, ranks, job.limit_s)
    peers = PeerWatch(meeting, call, watchdog) if meeting and call else None
    watchdog.start()
    if peers:
        peers.start()
    dead: dict[int, int] = {}
    trouble: Exception | None = None
    printed = {rank: _size(rank_log(job.folder, rank)) for rank in ranks}
    before = foreign_load.read()
    try:
        dead = start_group(job.plan, group, job.folder, launch, attempt, call, ranks)
    except START_ERRORS as error:
        trouble = error
    finally:
        watchdog.stop()
        if peers:
            peers.stop()
    # Ranks that were ended here, because they hung or others had failed, did not die by themselves: they count as those
    # that the agent asked to end.
    ended = _ended_here(watchdog, ranks, intervened=peers is not None and peers.intervened)
    dead = {
        r: -signal.SIGTERM if code == -signal.SIGKILL and r in ended else code for r, code in dead.items()
    }
    ending = Ending(
        dead=dead,
        trouble=sentence(trouble) if trouble else None,
        traceback=traceback_of(trouble) if trouble else None,
        hang_limit_s=watchdog.hang.limit_s if watchdog.hang else None,
        reports=watchdog.hang.reports if watchdog.hang else [],
        killed_for_memory=_oom_kills() > out_of_memory,
        load=foreign_load.load_between(before, foreign_load.read()),
    )
    if not ending.well:
        stem = f"stack-{group['group']}-{launch}-{attempt}"
        logs = {r: _said(job.folder, r, printed[r], stem) for r in ranks}
        reports = ending.reports or inspect(job.folder, ranks, since_ns=started_ns)
        ending = replace(ending, logs={r: log for r, log in logs.items() if log}, reports=reports)
    if meeting and call:
        meeting.tell(call, asdict(ending))
    return ending


def rank_log(folder: Path, rank: int) -> Path:
    """Return the file into which a rank prints."""
    return folder / f"rank-{rank}.log"


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _said(folder: Path, rank: int, offset: int, stem: str) -> str:
    """Return the end of what a rank has printed, and where it was when it crashed."""
    site = crash_site(read_tail(folder / "logs" / f"{stem}-{rank}.txt", most=STACK_BYTES))
    return "\n".join(text for text in (read_tail(rank_log(folder, rank), offset), site) if text)


def _ended_here(watchdog: Watchdog, ranks: range, *, intervened: bool) -> set[int]:
    """Return the ranks that the watchdog has killed."""
    if intervened:
        return set(ranks)
    return {r.rank for r in watchdog.hang.reports if r.state != "dead"} if watchdog.hang else set()


def start_group(
    plan: dict[str, Any],
    group: dict[str, Any],
    folder: Path,
    launch: int,
    attempt: int,
    call: Call | None,
    ranks: Sequence[int],
) -> dict[int, int]:
    """Run one process group to its end.

    Args:
        plan: Of the job.
        group: Of the plan.
        folder: The job's.
        launch: Its number.
        attempt: At the launch.
        call: The head's, where there are several nodes.
        ranks: Those that live here.

    Returns:
        The exit codes of ranks that failed here; empty when all ended well.

    Raises:
        InfrastructureError: The ranks did not meet; ``START_ERRORS``: the group could not be started.
    """
    arguments = [str(folder), group["group"], str(launch), str(attempt)]
    fork_server.begin(plan)  # anew where it has died
    with _network(plan, group, call) as settings:
        if fork_server.start_of(plan) == fork_server.FORKED:
            return fork_server.run_forked(
                entry.forked,
                arguments,
                settings["environment"],
                ranks=ranks,
                world_size=group["ranks"],
                host=settings["host"],
                port=call.port if call else 0,
                is_head=call is None or call.node == 0,
                limit_s=plan["runner"]["limits"]["launch_s"],
                meet=need_torch([b for b in plan["blocks"] if b["block"] in group["blocks"]], plan["runner"]),
            )
        return _run_spawned(plan, settings, arguments, call, len(ranks))


def _run_spawned(
    plan: dict[str, Any],
    settings: Mapping[str, Any],
    arguments: list[str],
    call: Call | None,
    num_ranks_here: int,
) -> dict[int, int]:
    """Run one process group to its end through torch's elastic agent, each rank in an interpreter of its own."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous.api import RendezvousError  # noqa: PLC0415
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    folder, *name = arguments
    config = LaunchConfig(
        min_nodes=call.num_nodes if call else 1,
        max_nodes=call.num_nodes if call else 1,
        nproc_per_node=num_ranks_here,
        run_id="-".join(name),
        **_rendezvous(plan, settings["host"], call),
        local_addr=settings["host"],
        max_restarts=0,
        monitor_interval=0.05,
        shutdown_timeout=5,
        logs_specs=DefaultLogsSpecs(log_dir=f"{folder}/logs/agent"),
    )
    os.environ.update(settings["environment"])
    try:
        elastic_launch(config, sys.executable)("-m", "paceline.worker", *arguments)
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    except RendezvousError as error:
        raise InfrastructureError(f"the ranks found no rendezvous at {settings['host']}: {error}") from error
    finally:
        for variable in settings["environment"]:
            os.environ.pop(variable, None)
    return {}


def _rendezvous(plan: dict[str, Any], host: str, call: Call | None) -> dict[str, Any]:
    """Return where and how the agents of all nodes meet: torchrun's own, with the node's number given."""
    if call is None:
        return {
            "rdzv_backend": "c10d",
            "rdzv_endpoint": f"{host}:0",
            "rdzv_configs": {"is_host": True},
        }
    limit_s = int(plan["runner"]["limits"]["launch_s"])
    return {
        "rdzv_backend": "static",
        "rdzv_endpoint": f"{call.address}:{call.port}",
        "rdzv_configs": {"rank": call.node, "timeout": limit_s},
    }


def _network(
    plan: dict[str, Any], group: dict[str, Any], call: Call | None
) -> AbstractContextManager[dict[str, Any]]:
    """Return a context that sets up the ranks' network and gives the rendezvous host and the ranks' environment."""
    runner = plan["runner"]
    environment = fork_server.environment_of(plan)
    memory = runner["limits"]["rank_memory_bytes"]
    if memory:
        environment["PACELINE_RANK_MEMORY"] = str(memory)
    if group["ranks"] > 1:
        # of jobs of before: normal
        environment["PACELINE_SCHEDULING"] = runner.get("scheduling", "normal")
    environment["PACELINE_ISOLATION"] = runner.get("isolation", "auto")
    if runner["network"] == "namespaces":
        from paceline.worker.network.group import shaped_network  # noqa: PLC0415

        return shaped_network(group["ranks"], group["link"], environment)
    interface = interface_towards(call.address) if call else None
    if call is None and runner["device"] in ("cpu", "fake"):
        interface = "lo"
    if interface:
        environment.setdefault("PACELINE_DATA_INTERFACE", interface)
        environment.setdefault("PACELINE_CONTROL_INTERFACE", interface)
    return nullcontext({"host": call.address if call else "127.0.0.1", "environment": environment})


def _oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since it started."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        return 0
    return 0
