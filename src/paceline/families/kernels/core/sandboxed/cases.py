"""Decides which cases run in a sandbox, and starts their processes; a launch starts each once."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import torch

from paceline.families.kernels.core.sandboxed import process
from paceline.families.kernels.core.sandboxed.process import SandboxedProcess
from paceline.worker.ranks.session import Block, Case, CaseError, Session
from paceline.worker.sandbox.bubblewrap import BUBBLEWRAP, UNISOLATED, USER_NAMESPACES, available

VARIABLE = "PACELINE_ISOLATION"
"""What the runner profile asks for."""
START_S = 300.0
"""A new interpreter imports torch, on a busy machine too."""


def isolation_of(session: Session, case: Case) -> str | None:
    """Return what isolates a case: one of the kinds of ``worker.sandbox``; None for a technique that is shipped.

    Raises:
        CaseError: ``unsupported``: the runner profile asks for what cannot be had here.
    """
    if not case.module.startswith("user:"):
        return None
    wanted = os.environ.get(VARIABLE, "auto")
    if session.device.torch_type != "cpu":
        kind, reason = UNISOLATED, "on an accelerator candidates run unisolated"
    else:
        kind, reason = available(wanted)
        if kind == BUBBLEWRAP and not _readable_by_all(case):
            kind, reason = available(USER_NAMESPACES if wanted == "auto" else UNISOLATED)
            reason = f"files are not readable by another user; {reason}"
    if kind == UNISOLATED and wanted not in ("auto", UNISOLATED):
        raise CaseError("unsupported", f"isolation: {wanted} cannot be had here: {reason}")
    return kind


def _readable_by_all(case: Case) -> bool:
    """Tell whether another user could read the engine, the interpreter's packages and the candidate's file."""
    file = Path("user") / f"{case.module.removeprefix('user:')}.py"
    needed = [file, process.PACKAGE / "__init__.py", Path(torch.__file__), Path(sys.base_prefix)]
    return all(path.stat().st_mode & stat.S_IROTH for path in needed if path.exists())


def open_sandboxed(session: Session, block: Block, case: Case, log: Path) -> SandboxedProcess | None:
    """Return the process of a candidate, started if this launch has none for it; None for what runs in no sandbox.

    Raises:
        CaseError: It could not be started, or the candidate cannot be imported.
    """
    kind = isolation_of(session, case)
    if kind is None or kind == UNISOLATED:
        return None
    key = f"sandbox {kind} {case.module}:{case.technique} {sorted(case.options.items())} {block.params['threads']}"
    return _kept(session, key, case, kind, block, log, {})


def open_empty(session: Session, block: Block, case: Case, kind: str) -> SandboxedProcess:
    """Return the process of a candidate that does nothing, for the same kind of sandbox."""
    log = Path("logs") / f"cell-{session.launch}-empty.log"
    key = f"sandbox {kind} empty {block.params['threads']}"
    return _kept(session, key, case, kind, block, log, {"idle": True})


def _kept(
    session: Session, key: str, case: Case, kind: str, block: Block, log: Path, load: dict[str, Any]
) -> SandboxedProcess:
    found = session.facts.get(key)
    if isinstance(found, SandboxedProcess) and not found.ended:
        return found
    started = process.start(
        kind, case, threads=int(block.params["threads"]), log=log.absolute(), timeout_s=START_S, load=load
    )
    session.facts[key] = started
    return started


def failed(found: Any) -> None:
    """End the sandbox of a candidate that failed: a process that it has left there would slow others down."""
    if isinstance(found, SandboxedProcess):
        found.end()


def finished(found: Any) -> None:
    """End a process at the end of a block, but for one in a sandbox, which serves the launch's other blocks too."""
    if not isinstance(found, SandboxedProcess):
        found.end()
