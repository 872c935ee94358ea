"""Where a call's time goes, between communication and labelled spans: by the host's clock, or by a device's own.

On a CPU work is done when a call returns. On an accelerator a call only issues work: what the host's clock reads around
it is the time of issuing. There, events mark where each part begins and ends in the current stream, and their distances
are read once the device is idle; what a stream waits for a transfer is communication that nothing has hidden.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

_perf_ns = time.perf_counter_ns
_Event = torch.Event


class Marks(Protocol):
    """Marks in a device's stream."""

    def mark(self) -> Any:
        """Put a mark behind what was issued to the current stream so far."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the time between two marks that the device has reached."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has reached all marks."""
        ...


class EventMarks:
    """The device's own events.

    Args:
        torch_type: Torch's name of the device.
    """

    def __init__(self, torch_type: str) -> None:
        self._type = torch_type

    def mark(self) -> Any:
        """Record an event in the current stream."""
        event = _Event(self._type, enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the device's time between two events."""
        return float(begin.elapsed_time(end)) * 1e-3

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.accelerator.synchronize()


class Split(Protocol):
    """Books a call's time."""

    def begin(self) -> Any:
        """Return where communication begins."""
        ...

    def communicated(self, begin: Any) -> None:
        """Book what has passed since it began as communication."""
        ...

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Book the time inside to a label, but for communication."""
        ...

    def take(self) -> dict[str, float]:
        """Return seconds by label, and of ``communicate``, since the last call."""
        ...

    def switch(self, on: bool) -> None:
        """Book from now on, or no longer, where that costs something."""
        ...


class HostSplit:
    """By the host's clock, for devices whose work is done when a call returns."""

    def __init__(self) -> None:
        self._communicate_ns = 0
        self._spans_ns: dict[str, int] = {}

    def begin(self) -> int:
        """Read the clock."""
        return _perf_ns()

    def communicated(self, begin: int) -> None:
        """Add the time since then."""
        self._communicate_ns += _perf_ns() - begin

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Add the time inside to a label."""
        start, communicated = _perf_ns(), self._communicate_ns
        try:
            yield
        finally:
            elapsed = _perf_ns() - start - (self._communicate_ns - communicated)
            self._spans_ns[name] = self._spans_ns.get(name, 0) + elapsed

    def take(self) -> dict[str, float]:
        """Return seconds by label, and reset."""
        split = {name: value * 1e-9 for name, value in self._spans_ns.items()}
        split["communicate"] = self._communicate_ns * 1e-9
        self._spans_ns = {}
        self._communicate_ns = 0
        return split

    def switch(self, on: bool) -> None:
        """Do nothing: reading the clock is cheap, and always done."""


class DeviceSplit:
    """By marks in the device's stream, which are put only while somebody asks: each costs a call of the driver."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._on = False
        self._communication: list[tuple[Any, Any]] = []
        self._spans: list[tuple[str, Any, Any, list[tuple[Any, Any]]]] = []

    def begin(self) -> Any:
        """Put a mark."""
        return self._marks.mark() if self._on else None

    def communicated(self, begin: Any) -> None:
        """Put a mark at the end of communication."""
        if begin is not None:
            self._communication.append((begin, self._marks.mark()))

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Put marks around what a label stands for."""
        if not self._on:
            yield
            return
        start, before = self._marks.mark(), len(self._communication)
        try:
            yield
        finally:
            self._spans.append((name, start, self._marks.mark(), self._communication[before:]))

    def take(self) -> dict[str, float]:
        """Wait for the device, return seconds by label, and reset."""
        seconds = self._marks.seconds
        if self._communication or self._spans:
            self._marks.synchronize()
        split: dict[str, float] = {}
        for name, start, stop, inside in self._spans:
            spent = seconds(start, stop) - sum(seconds(*pair) for pair in inside)
            split[name] = split.get(name, 0.0) + spent
        split["communicate"] = sum(seconds(*pair) for pair in self._communication)
        self._communication, self._spans = [], []
        return split

    def switch(self, on: bool) -> None:
        """Put marks from now on, or no longer."""
        self._on = on
