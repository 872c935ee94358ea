"""Starts the timing processes of a block: one for each technique, in a sandbox where that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.families.kernels.core.sandboxed import cases as sandboxes
from paceline.families.kernels.core.timing_process.client import ForkServer, TimingProcess
from paceline.worker.ranks.session import Block, Case, CaseError, Session


def fork_server_of(session: Session, block: Block) -> ForkServer:
    """Return the launch's fork server, started when a block first needs it."""
    server = session.facts.get("fork server")
    if server is None:
        server = session.facts["fork server"] = ForkServer()
    if "ceilings" not in session.facts:
        session.begin(block, "-", "calibrate")
        session.facts["ceilings"] = {}
    assert isinstance(server, ForkServer)
    return server


def open_idle(session: Session, block: Block, server: ForkServer) -> TimingProcess:
    """Start a process of a kernel that does nothing.

    Raises:
        CaseError: It could not be started.
    """
    log = Path("logs") / f"cell-{session.launch}-{block.block}-idle.log"
    return _started(session, block, server, (block.cases[0], log), {"idle": True})


def open_process(
    session: Session, block: Block, case: Case, server: ForkServer, *, requests: str = ""
) -> TimingProcess:
    """Start a process for a technique and let it import the technique.

    Args:
        session: The rank's.
        block: The case's.
        case: The technique.
        server: Forks it.
        requests: Module of an operation that answers requests of its own there.

    Raises:
        CaseError: The technique's source is refused, or it cannot be imported.
    """
    loaded = session.loaded(case)
    assert loaded.refusal is None
    log = Path("logs") / f"cell-{session.launch}-{block.block}-{case.label.replace('/', '.')}.log"
    # A sandbox answers nothing but what its judge can check: what an operation asks for besides is asked outside.
    sandboxed = None if requests else sandboxes.open_sandboxed(session, block, case, log)
    if sandboxed is not None:
        return sandboxed
    return _started(session, block, server, (case, log), {"requests": requests} if requests else {})


def _started(
    session: Session, block: Block, server: ForkServer, what: tuple[Case, Path], load: dict[str, Any]
) -> TimingProcess:
    case, log = what
    threads = int(block.params["threads"])
    process = server.start(
        case,
        device=session.device.torch_type,
        threads=threads,
        log=log.absolute(),
        reference_timer=str(block.params["reference_timer"]),
    )
    try:
        process.ask({"do": "load", **load}, timeout_s=0.8 * float(block.protocol["timeout_s"]))
    except CaseError:
        process.end()
        raise
    return process
