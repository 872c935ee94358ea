"""Lets the target check tokens that nobody has told."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="guesses",
    family="serving",
    implements=("decode",),
    summary="lets the target check tokens that nobody has told",
)
class Guesses:
    """Knows what it cannot know."""

    def decode(self, simulator: Simulator) -> None:
        """Ask for a check of tokens out of nowhere."""
        simulator.check((), tuple(range(simulator.given.num_tokens - 1)))
        simulator.deliver(simulator.wait().told or ())
