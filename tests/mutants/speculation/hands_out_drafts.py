"""Hands out what the drafter says, and lets the target follow behind."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Desk


@technique(
    name="hands-out-drafts",
    family="serving",
    implements=("decode",),
    summary="hands out what the drafter says",
)
class HandsOutDrafts:
    """Right as often as the drafter is; early even then."""

    def decode(self, desk: Desk) -> None:
        """Give an answer that no call of the target has told."""
        answer: list[int] = []
        while len(answer) < desk.given.num_tokens:
            desk.draft(answer)
            answer += desk.wait().told or ()
        desk.deliver(answer)
