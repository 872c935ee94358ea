"""Autoregressive decoding: the target says one token after another, and nobody drafts.

Algorithm: let the target say the token behind the prefix; hand it out; do so again.
Cost: N calls of the target for N tokens, one device, N·t_target.
Limits: nothing overlaps; it is what every speculation is held against.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="autoregressive",
    family="serving",
    implements=("decode",),
    summary="the target says one token after another",
)
class Autoregressive:
    """Asks the target for each token."""

    def decode(self, simulator: Simulator) -> None:
        """Hand out the target's answer."""
        answer: list[int] = []
        while len(answer) < simulator.given.num_tokens:
            # A check without drafts is a plain forward pass: it tells one token.
            simulator.check(answer)
            told = simulator.wait().told
            assert told is not None
            answer += told
            simulator.deliver(told)
