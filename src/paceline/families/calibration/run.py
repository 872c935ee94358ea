"""Measures one block of the calibration family through the same timing loop as every other family."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from paceline.worker.machine.device import FakeDevice
from paceline.worker.machine.telemetry import Watch
from paceline.worker.ranks.session import Block, Session
from paceline.worker.timing.interleaved import Limits, measure, summarise


@dataclass(slots=True, kw_only=True)
class _Candidate:
    label: str
    technique: Any
    device: FakeDevice

    def observe(self) -> tuple[float, int]:
        start = self.device.clock_ns()
        self.technique.run()
        return (self.device.clock_ns() - start) * 1e-9, start


def run_block(session: Session, block: Block) -> None:
    """Time every technique of the block on the fake device and emit one ``result`` event for each."""
    device = session.device
    if not isinstance(device, FakeDevice):
        raise TypeError("the calibration family runs on the fake device only")
    candidates = []
    for case in block.cases:
        factory = session.loaded(case).factory
        instance = factory(device, case.label, float(block.params["work_s"]), **case.options)
        candidates.append(_Candidate(label=case.label, technique=instance, device=device))
    protocol = block.protocol
    limits = Limits.of(protocol)
    rng = random.Random(session.draw_seed("order", block.block))
    watch = Watch(device.telemetry)
    series = measure(
        candidates,
        limits,
        clock_ns=device.clock_ns,
        gather=session.control.gather,
        rng=rng,
        each_batch=watch.sample,
        launch=session.launch,
    )
    for case, item in zip(block.cases, series, strict=True):
        session.emit_result(
            block,
            case,
            {
                "status": "ok",
                "metrics": {"latency": summarise(item, watch.flags)},
                "telemetry": watch.facts(),
                "correctness": {"passed": True, "oracle": "the fake device's work has no output"},
            },
        )
