"""Leaves out the end of the answer."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Desk


@technique(
    name="stops-early",
    family="serving",
    implements=("decode",),
    summary="leaves out the end of the answer",
)
class StopsEarly:
    """Is done sooner."""

    def decode(self, desk: Desk) -> None:
        """Hand out all tokens but one."""
        answer: list[int] = []
        while len(answer) < desk.given.num_tokens - 1:
            desk.check(answer)
            told = desk.wait().told or ()
            answer += told
            desk.deliver(told)
