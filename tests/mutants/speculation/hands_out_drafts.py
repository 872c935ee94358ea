"""Hands out what the drafter says, and lets the target follow behind."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="hands-out-drafts",
    family="serving",
    implements=("decode",),
    summary="hands out what the drafter says",
)
class HandsOutDrafts:
    """Right as often as the drafter is; early even then."""

    def decode(self, simulator: Simulator) -> None:
        """Give an answer that no call of the target has told."""
        answer: list[int] = []
        while len(answer) < simulator.given.num_tokens:
            simulator.draft(answer)
            answer += simulator.wait().told or ()
        simulator.deliver(answer)
