"""What a call holds in memory: its buffers, and what it needs beside them."""

from __future__ import annotations

from typing import Any

from paceline.families.collectives.core.candidate import Candidate
from paceline.worker.machine.memory import FreeBlocks, peak_bytes, reset_peak
from paceline.worker.ranks.session import Session

HELD_CALLS = 3


def held_bytes(session: Session, candidate: Candidate) -> dict[str, Any]:
    """Return the memory of the rank that needs most; absent where the kernel does not show it."""
    held = _held(session, candidate)
    if held is None:
        candidate.absent["held_bytes"] = "the kernel does not show the peak resident set"
        return {}
    return {"held_bytes": {"samples": [held]}}


def _held(session: Session, candidate: Candidate) -> float | None:
    """Return the bytes of a call's buffers and of what it needs beside them, on the rank that needs most.

    What a rank needs is the least growth of its peak resident set over a few calls, without a free block in the heap
    before each: the buffers were touched before, so that only further memory shows.
    """
    grown: list[float] = []
    free_blocks = FreeBlocks()
    for _ in range(HELD_CALLS):
        session.control.barrier()
        free_blocks.take()
        if not reset_peak():
            break
        before = peak_bytes()
        candidate.run_untimed()
        after = peak_bytes()
        if before is not None and after is not None:
            grown.append(float(after - before))
    free_blocks.end()
    everyone = session.control.gather([[min(grown) if grown else -1.0]])
    if min(r[0][0] for r in everyone) < 0:
        return None
    own = sum(b.numel() * b.element_size() for b in candidate.workspaces[0].buffers)
    return own + max(r[0][0] for r in everyone)
