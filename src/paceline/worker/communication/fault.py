"""Disturbances of a rank's communication, which tests and scenarios of faults ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A disturbance that strikes one rank's communication operations."""

    kind: Literal["kill", "stop", "delay", "skip", "link"]
    """kill: SIGKILL; stop: SIGSTOP; delay: the rank sleeps before it enters the operation; skip: the operation is left
    out (a missing call); link: what a peer sends reaches this rank late, while the peer goes on (a slow link)."""
    rank: int
    at_operation: int = 0
    """First operation that is struck, counted from when the faults were armed."""
    seconds: float = 0.0
    repeat: int = 1
    """Number of consecutive operations that are struck; a slow link is a fault that repeats without end."""
    peer: int | None = None
    """Strike only messages from or to this rank."""

    def hits(self, number: int, peer: int) -> bool:
        """Tell whether an operation with a peer is struck, by its number since the faults were armed."""
        in_window = self.at_operation <= number < self.at_operation + self.repeat
        return in_window and self.peer in (None, peer)
