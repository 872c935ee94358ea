"""What a run that died may leave behind on this host, and its removal: ``paceline doctor --clean``.

Normally there is nothing: ranks die with their launcher, launchers with their controller, network namespaces with the
process that holds them. Each cleaner finds one kind of thing that is certainly ours and certainly nobody's any more; a
driver with things of its own adds a cleaner to ``CLEANERS``.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from paceline.base.errors import InfrastructureError
from paceline.drivers.machine.engine import (
    CONTROLLER_LABEL,
    RUN_LABEL,
    NotThereError,
    controller_lives,
    engine_errors,
    may_be_there,
    open_engine,
)
from paceline.drivers.machine.state import state_folder

STOP_S = 3.0
LOOK_S = 3.0
"""Longest wait for an answer of the Docker Engine."""
WORKER = "paceline.worker"
MARK = "PACELINE_DIE_WITH_PARENT"
"""Its process id, which the local driver gives to launchers; a job that ``run.sh`` executes by hand has none."""
WORKTREES = "worktrees"
"""Folder of the state folder; the name of what lies there ends in the process id of its owner."""
CHECKPOINTS = re.compile(r"paceline-checkpoints-(\d+)-\w+")
"""Where training saves its state while checkpoints are measured, below the folder of temporary files: the number is the
process id of rank 0, which removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing that a run left behind."""

    kind: str
    name: str
    why: str
    """Why it is nobody's."""
    remove: Callable[[], None] = field(repr=False, compare=False)


class Cleaner(Protocol):
    """Finds the leftovers of one kind."""

    def __call__(self) -> list[Leftover]:
        """Return them; none where the kind does not exist on this host."""
        ...


def orphaned_processes() -> list[Leftover]:
    """Find ranks and launchers of the local driver that no controller waits for any more."""
    found = []
    for process in psutil.process_iter():
        try:
            if WORKER not in " ".join(process.cmdline()) or MARK not in process.environ():
                continue
            if _lives(process.environ()[MARK], process.create_time()):
                continue
            found.append(
                Leftover(
                    kind="process",
                    name=f"{process.name()} (pid {process.pid})",
                    why="the controller that started it is gone",
                    remove=_ender(process),
                )
            )
        except psutil.Error:
            continue
    return found


def _ender(process: psutil.Process) -> Callable[[], None]:
    def end() -> None:
        tree = [process, *process.children(recursive=True)]
        for one in tree:
            with contextlib.suppress(psutil.Error):
                one.terminate()
        _, alive = psutil.wait_procs(tree, timeout=STOP_S)
        for one in alive:
            with contextlib.suppress(psutil.Error):
                one.kill()

    return end


def _lives(controller: str, before: float) -> bool:
    """Tell whether a controller, by its process id, still runs; one that began later only has the number of one.

    Who a process's parent is says nothing: what loses its parent is adopted by whoever asked for it (tini, systemd).
    """
    try:
        found = psutil.Process(int(controller))
        return bool(found.status() != psutil.STATUS_ZOMBIE and found.create_time() <= before)
    except (psutil.Error, ValueError):
        return False


def orphaned_worktrees() -> list[Leftover]:
    """Find checkouts of other commits that ``reproduce`` made and did not live to remove."""
    folder = state_folder() / WORKTREES
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        owner = path.name.rpartition("-")[2]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            found.append(
                Leftover(
                    kind="worktree",
                    name=str(path),
                    why=f"process {owner}, which made it, is gone",
                    remove=lambda path=path: _remove_folder(path),  # type: ignore[misc]
                )
            )
    return found


def _remove_folder(path: Path) -> None:
    """Remove a folder; a repository forgets its checkout at its next ``git worktree prune``."""
    shutil.rmtree(path, ignore_errors=True)


def orphaned_checkpoints() -> list[Leftover]:
    """Find the checkpoints of training that was killed while it measured them: gigabytes, for large models."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob("paceline-checkpoints-*")):
        named = CHECKPOINTS.fullmatch(path.name)
        if named is not None and not psutil.pid_exists(int(named[1])):
            found.append(
                Leftover(
                    kind="checkpoints",
                    name=str(path),
                    why=f"process {named[1]}, which wrote them, is gone",
                    remove=lambda path=path: _remove_folder(path),  # type: ignore[misc]
                )
            )
    return found


def orphaned_containers() -> list[Leftover]:
    """Find containers and networks whose controller on this host is gone."""
    if not may_be_there():
        return []
    try:
        engine = open_engine(LOOK_S)
        with engine_errors():
            containers = engine.containers(all=True, filters={"label": RUN_LABEL})
            networks = engine.networks(filters={"label": RUN_LABEL})
    except InfrastructureError:
        return []
    found = []
    # A network goes only after the containers in it.
    for kind, item, remove in [
        *(("container", c, lambda i: engine.remove_container(i, force=True, v=True)) for c in containers),
        *(("network", n, engine.remove_network) for n in networks),
    ]:
        controller = (item.get("Labels") or {}).get(CONTROLLER_LABEL, "")
        if not controller_lives(controller):
            name = item.get("Name") or (item.get("Names") or [item["Id"][:12]])[0].lstrip("/")
            why = "the controller that started it is gone"
            found.append(Leftover(kind=kind, name=name, why=why, remove=_remover(remove, item["Id"])))
    return found


def _remover(remove: Callable[[str], None], identity: str) -> Callable[[], None]:
    def end() -> None:
        try:
            with engine_errors():
                remove(identity)
        except NotThereError:
            return
        except InfrastructureError as error:
            raise OSError(str(error)) from error

    return end


CLEANERS: Mapping[str, Cleaner] = {
    "processes": orphaned_processes,
    "worktrees": orphaned_worktrees,
    "checkpoints": orphaned_checkpoints,
    "containers": orphaned_containers,
}


def find_leftovers() -> list[Leftover]:
    """Ask every cleaner."""
    return [leftover for cleaner in CLEANERS.values() for leftover in cleaner()]
