"""What a device's ceilings are measured with: large enough for fast devices, no larger than slow ones bear."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from paceline.families.kernels.api import float8
from paceline.families.kernels.core import ceilings
from paceline.families.kernels.core.caches import Caches
from paceline.worker.machine.device import CpuDevice, Device
from paceline.worker.ranks.session import Session


class Slow:
    """A device on which a call of size n takes n times a millisecond of its own clock."""

    torch_type = "stub"

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.memory_bytes = memory_bytes
        self.made: list[int] = []
        self.waiting_ns = 0
        self.clock_ns = 0

    def describe(self) -> dict[str, Any]:
        return {"memory_bytes": self.memory_bytes}

    def synchronize(self) -> None:
        self.clock_ns += self.waiting_ns
        self.waiting_ns = 0

    def make(self, size: int) -> ceilings.Call:
        self.made.append(size)

        def call() -> None:
            self.waiting_ns = size * 1_000_000

        return call


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """A slow device, whose clock is the one that sizes are chosen by."""
    device = Slow()
    monkeypatch.setattr(ceilings, "_perf_ns", lambda: device.clock_ns)
    return device


def test_a_call_grows_until_it_takes_long_enough_to_show_a_rate(slow: Slow) -> None:
    size, _ = ceilings.grown(1, 1 << 20, slow.make, cast(Device, slow))
    assert size == 8
    assert slow.made == [1, 2, 4, 8]


def test_no_call_is_larger_than_the_largest(slow: Slow) -> None:
    size, _ = ceilings.grown(1, 3, slow.make, cast(Device, slow))
    assert size == 3


def test_a_size_without_a_choice_is_not_tried(slow: Slow) -> None:
    ceilings.grown(512, 512, slow.make, cast(Device, slow))
    assert slow.made == [512]
    assert slow.clock_ns == 0


@pytest.mark.parametrize(
    ("memory_bytes", "bounds"),
    [(2 << 30, (4 << 20, 256 << 20)), (80 << 30, (4 << 20, 1 << 30)), (None, (4 << 20, 1 << 30))],
    ids=["small", "large", "unknown"],
)
def test_a_copy_fits_into_a_small_devices_memory(
    memory_bytes: int | None, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Measured:
        device = Slow(memory_bytes)

    caches = Caches(private_bytes=1 << 20, last_level_bytes=1 << 20, source="a test")
    monkeypatch.setattr(ceilings, "caches_of", lambda device: caches)
    assert ceilings._copied_bytes(cast(Session, Measured())) == bounds


@pytest.mark.parametrize(("slower", "sizes"), [(1e4, [64]), (0.5, [64, 512])], ids=["in steps", "in tiles"])
def test_float8_that_a_processor_computes_element_by_element_is_not_awaited_at_full_size(
    slower: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float32 does 10¹¹ operations a second here, and float8 so many times fewer."""
    made: list[int] = []

    def product(size: int, dtype: torch.dtype, device: str) -> ceilings.Call:
        narrow = dtype == float8.DTYPE
        made.extend([size] if narrow else [])
        call: Any = lambda: None  # noqa: E731 - carries what it takes
        call.seconds = 2.0 * size**3 / 1e11 * (slower if narrow else 1.0)
        return cast(ceilings.Call, call)

    class Measured:
        device = CpuDevice()

    monkeypatch.setattr(ceilings, "_product", product)
    monkeypatch.setattr(ceilings, "_best", lambda call, session, seconds: getattr(call, "seconds", 1.0))
    monkeypatch.setattr(ceilings, "_second_call_s", lambda call, device: call.seconds)
    monkeypatch.setattr(ceilings, "_copied_bytes", lambda session: (1 << 10, 1 << 10))
    monkeypatch.setattr(float8, "native", lambda device: float8.DTYPE)
    session = cast(Session, Measured())
    rates = ceilings._measure(session, torch.float32, narrow=True, seconds=0.1)
    assert made == sizes
    assert rates["flops_per_s"] == pytest.approx(1e11 * max(1.0, 1.0 / slower))
