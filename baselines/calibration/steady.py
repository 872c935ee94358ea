"""Work of a known duration on the fake device.

Algorithm: advance the device's virtual clock by ``work_s`` times ``factor``; the device adds its noise.
Cost: none. A factor of 1.03 is a slowdown whose size is known, which calibration must find.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.calibration.api.work import FakeDevice


@technique(
    name="steady",
    family="calibration",
    implements=("work",),
    summary="work of a known duration",
)
class Steady:
    """Performs the same work in every call."""

    def __init__(self, device: FakeDevice, stream: str, work_s: float, *, factor: float = 1.0) -> None:
        self._device = device
        self._stream = stream
        self._seconds = work_s * factor

    def run(self) -> None:
        """Work once."""
        self._device.work(self._seconds, stream=self._stream)
