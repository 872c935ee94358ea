"""Copies on streams of their own: two that are waited for at both ends, as CUDA asks, and three that are not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class _OnSideStreams:
    """Copies on streams of its own, behind what the caller's stream has to do and before what follows."""

    naps_ns: tuple[int, ...] = (2_000_000,)
    """Of each stream, before it copies its part."""

    def __init__(self, problem: Problem) -> None:
        self.device = getattr(torch, problem.device.type)
        self.sides = [self.device.Stream() for _ in self.naps_ns]

    def run(self, source: Tensor, target: Tensor) -> None:
        """Copy each part on its stream."""
        mine = self.device.current_stream()
        number = len(self.sides)
        parts = zip(source.chunk(number), target.chunk(number), self.sides, self.naps_ns, strict=True)
        for read, written, side, nap_ns in parts:
            self.begin(side, mine)
            with self.device.stream(side):
                self.device._sleep(nap_ns)
                written.copy_(read)
        for side in self.sides:
            self.end(side, mine)

    def begin(self, side: Any, mine: Any) -> None:
        """Wait for what makes the input."""
        side.wait_stream(mine)

    def end(self, side: Any, mine: Any) -> None:
        """Let whoever reads the output wait."""
        mine.wait_stream(side)


@technique(
    name="side-stream", family="kernels", implements=("copy",), summary="a copy on a stream of its own"
)
class SideStream(_OnSideStreams):
    """Waits at both ends."""


@technique(
    name="two-streams", family="kernels", implements=("copy",), summary="halves on two streams, by events"
)
class TwoStreams(_OnSideStreams):
    """Waits for events that it records."""

    naps_ns = (2_000_000, 2_000_000)

    def begin(self, side: Any, mine: Any) -> None:
        """Wait for an event of the caller's stream."""
        side.wait_event(mine.record_event())

    def end(self, side: Any, mine: Any) -> None:
        """Let the caller's stream wait for an event."""
        mine.wait_event(side.record_event())


@technique(name="never-joined", family="kernels", implements=("copy",), summary="nobody waits for its stream")
class NeverJoined(_OnSideStreams):
    """Is timed without its work."""

    def end(self, side: Any, mine: Any) -> None:
        """Wait for nothing."""


@technique(
    name="joined-too-early", family="kernels", implements=("copy",), summary="waits before it has begun"
)
class JoinedTooEarly(_OnSideStreams):
    """Waits for what its stream had to do before the copy."""

    def begin(self, side: Any, mine: Any) -> None:
        """Wait at both ends, at once."""
        side.wait_stream(mine)
        mine.wait_stream(side)

    def end(self, side: Any, mine: Any) -> None:
        """Wait for nothing."""


@technique(
    name="half-joined", family="kernels", implements=("copy",), summary="one of two streams is waited for"
)
class HalfJoined(TwoStreams):
    """Is timed with half of its work, the quicker one."""

    naps_ns = (2_000_000, 400_000_000)

    def end(self, side: Any, mine: Any) -> None:
        """Wait for the first stream alone."""
        if side is self.sides[0]:
            super().end(side, mine)
