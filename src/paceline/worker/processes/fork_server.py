"""Starts ranks in a tenth of the time: forks them from a process that has imported PyTorch once for the whole job, if
any of its ranks needs it.

The server is Python's own (``multiprocessing.forkserver``). A forked rank is as fresh as a spawned one: it has its own
process group, seeds, memory limit, network namespace and fences, and imports its techniques itself.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from multiprocessing import connection, forkserver, util
from multiprocessing.context import ForkServerProcess
from typing import Any

from paceline.base.errors import InfrastructureError
from paceline.base.families.family import load_family
from paceline.worker.processes import group_store
from paceline.worker.processes.needs import PROCESSORS, need_torch

FOLDER_VARIABLE = "PACELINE_FORK_SERVER_FOLDER"
"""Names the folder of the server's socket, for the server alone."""
MEASURING_VARIABLE = "PACELINE_MEASURING"
"""Names modules that the server imports, for the server alone."""
PRELOADED = "paceline.worker.ranks.preloaded"
WITH_TORCH = ("numpy", "paceline.worker.ranks.group", "paceline.worker.fences.tensors")
"""What ranks that need PyTorch import of it sooner or later."""
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
SHORT = "/tmp"
"""Where the server's socket is if a path in the machine's own folder for temporary files would be too long."""
LONGEST = 107 - len("/pymp-12345678/listener-12345678")
"""Bytes of such a folder: Linux gives a socket's path 107 in all, and Python appends this."""
FORKED, SPAWNED = "forked", "spawned"
TOGETHER_S = 0.05
"""Ranks that die within this time count as having died together; the others are asked to end."""
ASKED_S = 5.0
"""How long a rank that was asked to end may take before it is killed."""
SERVER_LOST = 255
"""What Python says of a forked process whose server cannot tell how it ended. A rank may end so by itself, too."""
LOST_S = 1.0
"""A server whose connections are gone is gone itself within this time."""
Enter = Callable[[list[str], Mapping[str, str]], None]
"""The body of a rank's process: its arguments and its variables."""


def begin(plan: Mapping[str, Any]) -> None:
    """Start the server of a job whose ranks are forked; the import of PyTorch goes on beside the caller.

    Call it in the host's network namespace, before a network is set up: the server stays where it is started. Where it
    runs already, nothing happens.

    Args:
        plan: Of the job.

    Raises:
        OSError: It cannot be started.
    """
    if start_of(plan) != FORKED:
        return
    # libraries read these when they are imported
    os.environ.update(environment_of(plan))
    os.environ[FOLDER_VARIABLE] = _socket_folder()
    os.environ[MEASURING_VARIABLE] = ",".join(measuring(plan))
    try:
        torch = WITH_TORCH if need_torch(plan.get("blocks", ()), plan["runner"]) else ()
        # last what freezes all that is there by then
        multiprocessing.set_forkserver_preload([*plan.get("preload", ()), *torch, PRELOADED])
        forkserver.ensure_running()
    finally:
        del os.environ[FOLDER_VARIABLE], os.environ[MEASURING_VARIABLE]


def _socket_folder() -> str:
    """Return Python's folder for sockets of this process, which it makes once and removes itself."""
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = SHORT
    try:
        return util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def measuring(plan: Mapping[str, Any]) -> list[str]:
    """Return the modules that measure a job's blocks, which every rank of every launch would import anew.

    None on accelerators, whose runtimes an import might ask for a device, and none where techniques run in processes
    of their own: these are forked from ranks, and know nothing of what judges them.
    """
    if plan["runner"].get("device") not in PROCESSORS:
        return []
    places = set()
    for block in plan.get("blocks", ()):
        family = load_family(block["family"])
        operation = str(block["params"].get(family.operation_key))
        if family.is_isolated(operation):
            return []
        places.add(family.runner_module(operation))
    return sorted(places)


def end() -> None:
    """End the server, and wait until it is gone; where there is none, nothing happens."""
    # the library itself lets it end some time after this process; the folder of its socket goes with it
    with suppress(FileNotFoundError):
        forkserver._forkserver._stop()  # type: ignore[attr-defined]


def start_of(plan: Mapping[str, Any]) -> str:
    """Return how a job's ranks are started; jobs of before have spawned ones."""
    return str(plan["runner"].get("start", SPAWNED))


def environment_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of every rank of a job; a rank has one thread unless its runner says otherwise.

    PyTorch loads the backends of an NPU and of plug-ins by itself unless it is told not to. A rank could import one but
    none of the processes that it starts does, which are given tensors' devices by name.
    """
    runner = plan["runner"]
    loaded = {AUTOLOAD: "1"} if runner.get("device") in ("npu", "plugin") else {}
    return {"OMP_NUM_THREADS": "1", **runner["env"], **loaded}


def run_forked(
    enter: Enter,
    arguments: list[str],
    environment: Mapping[str, str],
    *,
    ranks: Sequence[int],
    world_size: int,
    host: str,
    port: int = 0,
    is_head: bool = True,
    limit_s: float = 300.0,
    meet: bool = True,
) -> dict[int, int]:
    """Fork the ranks that live here, wait until all have ended, and end the rest when one fails.

    Args:
        enter: What a rank does.
        arguments: For it.
        environment: Variables of every rank, beside those of its place in the group.
        ranks: Those that live here.
        world_size: Ranks of the group on all nodes.
        host: Where the group's store is.
        port: Of the store; 0: any.
        is_head: Whether the store is here.
        limit_s: How long the store of another node is waited for.
        meet: Whether they make a group, which takes a store.

    Returns:
        The exit codes of ranks that failed by themselves; negative: minus the signal.

    Raises:
        InfrastructureError: The store cannot be reached, or the server was killed.
        OSError: A rank could not be forked.
    """
    context = multiprocessing.get_context("forkserver")
    store = group_store.held(
        context,
        host,
        port,
        is_head=is_head,
        limit_s=limit_s,
        own_network="PACELINE_NAMESPACES" in environment,
    )
    with store if meet else nullcontext(port) as bound:
        group = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(len(ranks)),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(bound),
            # the store has a process of its own: no rank makes one
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        processes: dict[int, ForkServerProcess] = {}
        try:
            for local, rank in enumerate(ranks):
                place = {**environment, **group, "RANK": str(rank), "LOCAL_RANK": str(local)}
                processes[rank] = context.Process(target=enter, args=(arguments, place), name=f"rank-{rank}")
                processes[rank].start()
            codes = _wait(processes)
            if SERVER_LOST in codes.values() and _is_lost():
                raise InfrastructureError(
                    "the process that ranks are forked from was killed, and they with it"
                )
            return codes
        finally:
            _end(processes)


def _is_lost() -> bool:
    """Tell whether the server has ended; its end stays to be collected by the library."""
    pid: int = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    deadline = time.monotonic() + LOST_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(TOGETHER_S)
    return False


def _wait(processes: Mapping[int, ForkServerProcess]) -> dict[int, int]:
    """Wait until all have ended well or one has failed; return the exit codes of those that failed together."""
    left = set(processes)
    while left:
        connection.wait([processes[rank].sentinel for rank in left])
        if _failures(processes):
            time.sleep(TOGETHER_S)
            return _failures(processes)
        left = {rank for rank in left if processes[rank].exitcode is None}
    return {}


def _failures(processes: Mapping[int, ForkServerProcess]) -> dict[int, int]:
    codes = {rank: process.exitcode for rank, process in processes.items()}
    return {rank: code for rank, code in codes.items() if code}


def _end(processes: Mapping[int, ForkServerProcess]) -> None:
    """Ask what still runs to end, and kill what does not."""
    for process in processes.values():
        if process.exitcode is None and process.pid is not None:
            process.terminate()
    deadline = time.monotonic() + ASKED_S
    for process in processes.values():
        if process.pid is None:
            continue
        process.join(max(deadline - time.monotonic(), 0.0))
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()
