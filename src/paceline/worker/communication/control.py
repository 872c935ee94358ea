"""The harness's own small messages between ranks; free of torch, for ranks that need none.

``Control`` is that of a rank alone, which agrees with itself. Where there are more, ``group_control.py`` sends tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they import torch
    import torch

    from paceline.worker.communication.transport import Transport


class Control:
    """The messages of a rank that is alone."""

    def __init__(self) -> None:
        self.rank = 0
        self.world_size = 1
        self.clock_offset_ns = 0
        """Add to this rank's monotonic clock to get rank 0's."""
        self.clock_error_ns = 0
        """Bound on the offset's error."""

    def gather(self, rows: Sequence[Sequence[float]]) -> list[list[list[float]]]:
        """Exchange equally shaped rows of floats; the result holds every rank's rows, in rank order."""
        return [[list(row) for row in rows]]

    def gather_text(self, text: str) -> list[str]:
        """Exchange strings between ranks."""
        return [text]

    def agree(self, number: int) -> int:
        """Return rank 0's number on every rank."""
        return number

    def first_problem(self, problem: str | None) -> str | None:
        """Return the problem of the lowest rank that has one, the same on every rank; None when none has."""
        for rank, text in enumerate(self.gather_text(problem or "")):
            if text:
                return text if self.world_size == 1 else f"rank {rank}: {text}"
        return None

    def sum_in_place(self, tensor: torch.Tensor) -> None:
        """Add a tensor of the CPU up over ranks, in place."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def synchronise_clocks(self, *, rounds: int = 32) -> None:
        """Estimate this rank's clock offset to rank 0 from the fastest of several ping-pongs.

        The error is at most half of the least round trip; both are kept. Ranks of one host share a clock, so there the
        offset should come out within that bound of zero.
        """

    def start_together(self, carrier: Transport | None = None) -> int:
        """Let all ranks leave at one instant of rank 0's clock; return this rank's lateness in nanoseconds.

        Rank 0 names an instant a little ahead. The distance adapts: it grows when a rank was late, and shrinks slowly;
        it stays short, because ranks that wait by spinning keep their cores from whatever the carrier needs next.

        Args:
            carrier: Sends the instant, so that its threads and sockets are as awake as in a loop of calls; None sends
                it over the control group.
        """
        return 0

    def adapt_margin(self, late_ns: float) -> None:
        """Widen the margin after a late start of any rank, narrow it slowly otherwise."""
