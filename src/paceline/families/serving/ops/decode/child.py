"""The process in which a technique of ``decode`` decodes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from paceline.families.serving.api.speculating import Decoder, Given
from paceline.families.serving.core.child import Make, made, main
from paceline.families.serving.ops.decode.chain import Chain
from paceline.families.serving.ops.decode.event_simulator import EventSimulator
from paceline.worker.fences.guard import Guard


def play(make: Make, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let it decode all answers."""
    technique: Decoder = made(make, guard)
    found: list[dict[str, Any]] = []
    for seed in asked["seeds"]:
        playing = EventSimulator(Given(**asked["given"]), Chain(seed, asked["acceptance"]))
        with guard.watch():
            technique.decode(playing)
        found.append(asdict(playing.log()))
    guard.check()
    return {"logs": found}


if __name__ == "__main__":
    sys.exit(main(play))
