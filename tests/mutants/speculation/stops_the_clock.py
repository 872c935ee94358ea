"""Sets the simulator's clock back."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="stops-the-clock",
    family="serving",
    implements=("decode",),
    summary="sets the simulator's clock back",
)
class StopsTheClock:
    """Decodes in no time."""

    def decode(self, simulator: Simulator) -> None:
        """Hand out every token at the start."""
        answer: list[int] = []
        while len(answer) < simulator.given.num_tokens:
            simulator.check(answer)
            told = simulator.wait().told or ()
            simulator._now_s = 0.0
            answer += told
            simulator.deliver(told)
