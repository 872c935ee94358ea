"""Asks the target, and takes the drafts whatever it says."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Desk


@technique(
    name="accepts-all",
    family="serving",
    implements=("decode",),
    summary="takes drafts that the target has declined",
)
class AcceptsAll:
    """Checks without looking."""

    def decode(self, desk: Desk) -> None:
        """Give an answer that is the drafter's in part."""
        answer: list[int] = []
        while (left := desk.given.num_tokens - len(answer)) > 0:
            drafts: list[int] = []
            for _ in range(min(desk.given.lookahead, left - 1)):
                desk.draft([*answer, *drafts])
                drafts += desk.wait().told or ()
            desk.check(answer, drafts)
            told = desk.wait().told or ()
            taken = (*drafts, told[-1])
            answer += taken
            desk.deliver(taken)
