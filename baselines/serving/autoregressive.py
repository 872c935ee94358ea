"""Autoregressive decoding: the target says one token after another, and nobody drafts.

Algorithm: let the target say the token behind the prefix; hand it out; do so again.
Cost: N calls of the target for N tokens, one device, N·t_target.
Limits: nothing overlaps; it is what every speculation is held against.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Desk


@technique(
    name="autoregressive",
    family="serving",
    implements=("decode",),
    summary="the target says one token after another",
)
class Autoregressive:
    """Asks the target for each token."""

    def decode(self, desk: Desk) -> None:
        """Hand out the target's answer."""
        answer: list[int] = []
        while len(answer) < desk.given.num_tokens:
            desk.check(answer)
            told = desk.wait().told
            assert told is not None
            answer += told
            desk.deliver(told)
