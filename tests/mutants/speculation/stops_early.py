"""Leaves out the end of the answer."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="stops-early",
    family="serving",
    implements=("decode",),
    summary="leaves out the end of the answer",
)
class StopsEarly:
    """Is done sooner."""

    def decode(self, simulator: Simulator) -> None:
        """Hand out all tokens but one."""
        answer: list[int] = []
        while len(answer) < simulator.given.num_tokens - 1:
            simulator.check(answer)
            told = simulator.wait().told or ()
            answer += told
            simulator.deliver(told)
