"""The time that no honest call undercuts: a disturbed calibration accuses nobody, a lie is still found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.families.kernels.core import ceilings
from paceline.families.kernels.ops.gemm.spec import OPERATION
from paceline.worker.machine.device import CpuDevice

pytestmark = pytest.mark.gate

SIZE = 256
FLOPS = 2.0 * SIZE**3
HONEST_RATE = 1e11
HONEST_S = FLOPS / HONEST_RATE


class Looks:
    """Stands in for the measured ceilings: each look finds the next rate."""

    def __init__(self, *rates: float) -> None:
        """Give the operations a second that each look finds."""
        self.rates = list(rates)
        self.seconds: list[float] = []

    def __call__(self, *_: object, seconds: float, **__: object) -> dict[str, float]:
        self.seconds.append(seconds)
        return {"flops_per_s": self.rates.pop(0), "bytes_per_s": 1e10}


def floor_with(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> tuple[ceilings.Floor, Any, Any]:
    monkeypatch.setattr(ceilings, "_measure", looks)
    session: Any = SimpleNamespace(facts={"ceilings": {}}, device=CpuDevice())
    params = {"op": "gemm", "dtype": "float32", "threads": 1, "m": SIZE, "n": SIZE, "k": SIZE, "batch": 1}
    block: Any = SimpleNamespace(params=params, protocol={"cache": "warm"})
    return ceilings.floor_of(session, block, OPERATION.arithmetic), session, block


def test_a_calibration_that_was_disturbed_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(HONEST_RATE / 10, HONEST_RATE)
    floor, session, block = floor_with(looks, monkeypatch)
    assert floor(HONEST_S) == pytest.approx(HONEST_S / ceilings.SAFETY)
    assert looks.seconds == [ceilings.CALIBRATION_S, ceilings.SECOND_LOOK_S]
    # What the record says the device can do is the best that was seen, too.
    assert ceilings.of_block(session, block, OPERATION.arithmetic)["flops_per_s"] == HONEST_RATE


def test_a_time_that_is_too_short_is_below_the_second_look_too(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(HONEST_RATE, HONEST_RATE / 3)
    floor, _, _ = floor_with(looks, monkeypatch)
    lie_s = HONEST_S / 100
    assert floor(lie_s) == floor(lie_s / 2) == pytest.approx(HONEST_S / ceilings.SAFETY)
    assert len(looks.seconds) == 2, "a launch looks a second time once"


def test_a_time_that_may_be_true_costs_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(HONEST_RATE)
    floor, _, _ = floor_with(looks, monkeypatch)
    assert floor(HONEST_S) <= HONEST_S
    assert looks.seconds == [ceilings.CALIBRATION_S]
