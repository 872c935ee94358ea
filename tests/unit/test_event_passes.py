"""Passes timed by device events: short kernels are not timed by their launches, and other streams hide nothing."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.families.kernels.core.candidate import Candidate
from paceline.families.kernels.core.timing_process import passes
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.ranks.session import CaseError

MICRO = 1000
LAUNCH_NS, KERNEL_NS, CALLS = 100 * MICRO, 30 * MICRO, 64


class VirtualDevice:
    """A device with two streams, and a host that needs time to launch; all in virtual nanoseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.ready = {"main": 0, "side": 0}
        device = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.at = 0

            def record(self) -> None:
                self.at = max(device.ready["main"], device.now)

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) * 1e-6

        self.Event = Event

    def get_device_properties(self, device: object) -> Any:
        # As torch.cuda does, which counts devices through NVIDIA's library when it is first asked.
        sys.audit("ctypes.dlopen", "libnvidia-ml.so.1")
        return SimpleNamespace(clock_rate=1_980_000)

    def _sleep(self, cycles: int) -> None:
        self.launch(round(cycles / 1.98), host_ns=2 * MICRO)

    def launch(self, work_ns: int, *, host_ns: int = LAUNCH_NS, stream: str = "main") -> None:
        self.now += host_ns
        self.ready[stream] = max(self.ready[stream], self.now) + work_ns

    def synchronize(self) -> None:
        self.now = max(self.now, *self.ready.values())


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> VirtualDevice:
    device = VirtualDevice()
    monkeypatch.setattr(torch, "virtual", device, raising=False)
    monkeypatch.setattr(passes, "_perf_ns", lambda: device.now)
    monkeypatch.setattr(torch.accelerator, "synchronize", device.synchronize)
    return device


VIRTUAL: Any = SimpleNamespace(type="virtual")


def test_short_kernels_are_not_timed_at_the_rate_of_their_launches(virtual: VirtualDevice) -> None:
    def run() -> None:
        virtual.launch(KERNEL_NS)

    found = passes.event_pass(run, [()] * CALLS, VIRTUAL, launch_ns=LAUNCH_NS, cycles=1.98, cycles_seen=1.98)
    assert found.elapsed_ns == pytest.approx(CALLS * KERNEL_NS, rel=0.02)
    assert found.blocked_ns >= found.queued_ns == CALLS * LAUNCH_NS
    # With the least wait, as it was for every pass, the launches would be timed.
    least = passes.event_pass(run, [()] * CALLS, VIRTUAL, launch_ns=0, cycles=1.98, cycles_seen=1.98)
    assert least.elapsed_ns > 2 * CALLS * KERNEL_NS


def test_a_device_whose_clock_is_slower_than_it_says_waits_no_longer_than_its_judge_allows(
    virtual: VirtualDevice,
) -> None:
    def run() -> None:
        virtual.launch(KERNEL_NS)

    def blocked_ns(launch_ns: int, cycles_seen: float) -> tuple[int, float]:
        found = passes.event_pass(
            run, [()] * CALLS, VIRTUAL, launch_ns=launch_ns, cycles=2 * 1.98, cycles_seen=cycles_seen
        )
        return found.blocked_ns, found.cycles_seen

    _, most = passes.BLOCKING_NS
    first, seen = blocked_ns(most, cycles_seen=2 * 1.98)
    assert first == pytest.approx(2 * most, rel=0.01)
    assert seen == pytest.approx(1.98, rel=0.01)
    assert blocked_ns(most, seen)[0] == pytest.approx(most, rel=0.01)
    # a shorter wait may be too long: it is not shortened, lest launches be timed once the clock is faster
    assert blocked_ns(LAUNCH_NS, seen)[0] == pytest.approx(
        2 * passes.BLOCKING_SHARE * CALLS * LAUNCH_NS, rel=0.01
    )


def test_nothing_that_the_fences_refuse_is_done_while_a_technique_runs(
    virtual: VirtualDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    guard = Guard()
    cycles = passes.cycles_per_ns(VIRTUAL)
    assert cycles == pytest.approx(1.98)
    with guard.watch():
        passes.wake(lambda: virtual.launch(KERNEL_NS), (), VIRTUAL)
        passes.event_pass(
            lambda: virtual.launch(KERNEL_NS),
            [()],
            VIRTUAL,
            launch_ns=LAUNCH_NS,
            cycles=cycles,
            cycles_seen=cycles,
        )
        passes.synchronous_pass(lambda: virtual.launch(KERNEL_NS), [()])
    with pytest.raises(ContractBreachError, match=r"ctypes\.dlopen"), guard.watch():
        passes.cycles_per_ns(VIRTUAL)


def test_copies_in_a_pause_are_none_of_the_passs_time(virtual: VirtualDevice) -> None:
    called: list[int] = []

    def run() -> None:
        called.append(len(called))
        virtual.launch(KERNEL_NS)

    pause: Any = SimpleNamespace(after=5, look=lambda: (called.append(-1), virtual.launch(10 * KERNEL_NS)))
    found = passes.event_pass(
        run, [()] * CALLS, VIRTUAL, launch_ns=LAUNCH_NS, cycles=1.98, cycles_seen=1.98, pause=pause
    )
    assert found.elapsed_ns == pytest.approx(CALLS * KERNEL_NS, rel=0.02)
    assert called.index(-1) == 5
    assert len(called) == CALLS + 1


def test_waking_up_tells_what_a_launch_takes_the_host(virtual: VirtualDevice) -> None:
    total, launch = passes.wake(lambda: virtual.launch(KERNEL_NS), (), VIRTUAL)
    assert launch == LAUNCH_NS
    assert total >= passes.WAKE_NS


def candidate(virtual: VirtualDevice, run: Any) -> Candidate:
    """Return a candidate whose passes by device events are known, and whose process is the virtual device."""
    found = Candidate.__new__(Candidate)
    found.num_sets, found.flush_bytes, found.hot = CALLS, 0, False
    found.rng, found.draws = random.Random(1), [None]  # type: ignore[list-item]
    point: Any = SimpleNamespace(
        device="virtual",
        timeout_s=1.0,
        num_variations=3,
        change=lambda number, index: ({"index": index}, None),
    )
    found.point = point
    found.pass_ns = [
        passes.event_pass(
            run, [()] * CALLS, VIRTUAL, launch_ns=LAUNCH_NS, cycles=1.98, cycles_seen=1.98
        ).elapsed_ns
        for _ in range(5)
    ]

    def timed(count: int, *, clock: str, **settings: Any) -> dict[str, int]:
        assert clock == "host"
        elapsed_ns, queued_ns = passes.synchronous_pass(run, [()] * count)
        return {"elapsed_ns": elapsed_ns, "queued_ns": queued_ns}

    process: Any = SimpleNamespace(ask=lambda message, timeout_s: {}, run=timed)
    found.process = process
    return found


@pytest.mark.parametrize("kernel_ns", [3 * MICRO, KERNEL_NS, 1500 * MICRO])
def test_who_works_on_the_timed_stream_is_believed(virtual: VirtualDevice, kernel_ns: int) -> None:
    honest = candidate(virtual, lambda: virtual.launch(kernel_ns))
    assert honest._held_against_the_host() < 200 * MICRO


def test_work_on_another_stream_is_refused(virtual: VirtualDevice) -> None:
    def run() -> None:
        virtual.launch(1500 * MICRO, host_ns=10 * MICRO, stream="side")
        virtual.launch(3 * MICRO, host_ns=10 * MICRO)

    hidden = candidate(virtual, run)
    assert max(hidden.pass_ns) < 0.01 * CALLS * 1500 * MICRO, "events see nothing of it"
    with pytest.raises(CaseError, match=r"keep the device busy 9\d\.\d ms longer by the host's clock"):
        hidden._held_against_the_host()


def test_a_cpu_has_no_other_streams() -> None:
    found = Candidate.__new__(Candidate)
    point: Any = SimpleNamespace(device="cpu")
    found.point = point
    assert found._held_against_the_host() == 0.0
