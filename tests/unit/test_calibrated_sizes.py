"""What a device's ceilings are measured with: large enough for fast devices, no larger than slow ones bear."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from paceline.families.kernels.core import ceilings
from paceline.families.kernels.core.caches import Caches
from paceline.worker.device import Device
from paceline.worker.session import Session


class Slow:
    """A device on which a call of size n takes n times a millisecond."""

    torch_type = "stub"

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.memory_bytes = memory_bytes
        self.made: list[int] = []
        self.waiting_s = 0.0

    def describe(self) -> dict[str, Any]:
        return {"memory_bytes": self.memory_bytes}

    def synchronize(self) -> None:
        time.sleep(self.waiting_s)
        self.waiting_s = 0.0

    def make(self, size: int) -> ceilings.Call:
        self.made.append(size)

        def call() -> None:
            self.waiting_s = size * 1e-3

        return call


def test_a_call_grows_until_it_takes_long_enough_to_show_a_rate() -> None:
    device = Slow()
    size, _ = ceilings.grown(1, 1 << 20, device.make, cast(Device, device))
    assert size == 8
    assert device.made == [1, 2, 4, 8]


def test_no_call_is_larger_than_the_largest() -> None:
    device = Slow()
    size, _ = ceilings.grown(1, 3, device.make, cast(Device, device))
    assert size == 3


def test_a_size_without_a_choice_is_not_tried() -> None:
    device = Slow()
    ceilings.grown(512, 512, device.make, cast(Device, device))
    assert device.made == [512]
    assert device.waiting_s == 0.0


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
