"""Asks the target, and takes the drafts whatever it says."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="accepts-all",
    family="serving",
    implements=("decode",),
    summary="takes drafts that the target has declined",
)
class AcceptsAll:
    """Checks without looking."""

    def decode(self, simulator: Simulator) -> None:
        """Give an answer that is the drafter's in part."""
        answer: list[int] = []
        while (left := simulator.given.num_tokens - len(answer)) > 0:
            drafts: list[int] = []
            for _ in range(min(simulator.given.lookahead, left - 1)):
                simulator.draft([*answer, *drafts])
                drafts += simulator.wait().told or ()
            simulator.check(answer, drafts)
            told = simulator.wait().told or ()
            taken = (*drafts, told[-1])
            answer += taken
            simulator.deliver(taken)
