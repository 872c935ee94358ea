"""What a calibration technique is given: the fake device, on which it performs work of a known duration."""

from __future__ import annotations

from paceline.worker.machine.device import FakeDevice

__all__ = ["FakeDevice"]
