"""Where a call's time goes on a device that works on after calls have returned: by its own marks."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.families.collectives.core import passes
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.transport import Message, ThreadHub, ThreadTransport, Waitable
from paceline.worker.timing import split
from paceline.worker.timing.split import EventMarks


class Stream:
    """A device with a queue and a clock of its own; the host's calls take no time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.idle = True
        self.marks = 0

    def work(self, seconds: float) -> None:
        """Issue work."""
        self.now_s += seconds
        self.idle = False

    def mark(self) -> float:
        """Put a mark behind it."""
        self.marks += 1
        return self.now_s

    def seconds(self, begin: float, end: float) -> float:
        """Return what lies between two marks, which the device must have reached."""
        assert self.idle, "read before the device came there"
        return end - begin

    def synchronize(self) -> None:
        """Wait for it."""
        self.idle = True


class Slow(ThreadTransport):
    """A carrier for which the stream waits two seconds a transfer."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(ThreadHub(2), 0)
        self._stream = stream

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        """Start nothing on the host."""
        stream = self._stream

        class Work:
            def wait(self) -> None:
                stream.work(2.0)

        return [Work()]

    def all_reduce(self, tensor: torch.Tensor, *, wait: bool = True) -> Waitable | None:
        """Let the stream wait."""
        self._stream.work(3.0)
        return None


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def comm(stream: Stream) -> Comm:
    made = Comm(Slow(stream), marks=stream)
    made.splitting(True)
    return made


def test_spans_and_communication_are_the_device_s_own_times(comm: Comm, stream: Stream) -> None:
    with comm.span("pack"):
        stream.work(5.0)
    transfer = comm.start(sends=[(torch.ones(1), 1)])
    stream.work(7.0)  # hides some of the transfer: no communication
    transfer.wait()
    comm.backend.all_reduce(torch.ones(1))
    assert comm.take_split() == pytest.approx({"pack": 5.0, "communicate": 5.0})
    assert comm.take_split() == {"communicate": 0.0}


def test_communication_inside_a_span_is_not_the_span_s(comm: Comm, stream: Stream) -> None:
    for _ in range(2):
        with comm.span("compress"):
            stream.work(1.0)
            comm.send(torch.ones(1), 1)
            stream.work(0.5)
    assert comm.take_split() == pytest.approx({"compress": 3.0, "communicate": 4.0})


def test_no_mark_is_put_where_nobody_asks(comm: Comm, stream: Stream) -> None:
    comm.splitting(False)
    with comm.span("pack"):
        comm.send(torch.ones(1), 1)
    assert stream.marks == 0
    assert comm.take_split() == {"communicate": 0.0}


def test_the_split_of_a_collective_is_the_device_s(comm: Comm, stream: Stream) -> None:
    comm.splitting(False)

    def run() -> None:
        with comm.span("pack"):
            stream.work(0.25)
        comm.send(torch.ones(1), 1)

    control = SimpleNamespace(barrier=lambda: None, gather=lambda rows: [rows])
    candidate: Any = SimpleNamespace(comm=comm, run_untimed=run)
    found = passes.split(SimpleNamespace(control=control), candidate)  # type: ignore[arg-type]
    assert found["pack_s"]["samples"] == pytest.approx([0.25] * passes.SPLIT_CALLS)
    assert found["communicate_s"]["samples"] == pytest.approx([2.0] * passes.SPLIT_CALLS)
    marks = stream.marks
    run()
    assert stream.marks == marks


def test_events_are_timed_and_read_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Event:
        def __init__(self, device: str, *, enable_timing: bool) -> None:
            assert device == "cuda"
            assert enable_timing
            self.recorded = False
            made.append(self)

        def record(self) -> None:
            self.recorded = True

        def elapsed_time(self, end: Any) -> float:
            return 1500.0 if end is not self else 0.0

    monkeypatch.setattr(split, "_Event", Event)
    marks = EventMarks("cuda")
    begin, end = marks.mark(), marks.mark()
    assert [event.recorded for event in made] == [True, True]
    assert marks.seconds(begin, end) == 1.5
