"""What happens to a group that trains: who is killed, in which step and where in it, and when a newcomer is called."""

from __future__ import annotations

import random
from dataclasses import dataclass

from paceline.families.training.api.rounds import round_ends
from paceline.families.training.core.planning.parameters import NONE
from paceline.families.training.ops.churn.parameters import SENDING

LEAST_ROUNDS = 8
"""Rounds before the kill, between it and the newcomer's call, and with the newcomer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One run's faults."""

    victim: int
    """The peer that is killed; −1 where nobody is."""
    kill_step: int
    """The step, from 0, in which it is; −1 means never."""
    sending: bool
    """Whether it dies while it sends at the end of that step, or else while it computes."""
    layer: int
    """Computing: the layer at which it dies."""
    backward: bool
    """Computing: in backward, after that layer, or else in forward."""
    message: int
    """Sending: tensors of the exchange that it sends before."""
    join_step: int
    """Steps after which a newcomer is called."""


def draw(
    fault: str, generator: random.Random, *, num_peers: int, steps: int, sync_every: int, layers: int
) -> Script:
    """Draw a run's faults: the kill falls into its second quarter, the call comes after two thirds.

    Peer 0, whose weights are evaluated, is never the victim.
    """
    kill_steps = range(steps // 4, steps // 2)
    sending = fault == SENDING
    candidates = [s for s in round_ends(sync_every, steps) if s in kill_steps] if sending else kill_steps
    kill_step, victim = generator.choice(candidates), generator.randrange(1, num_peers)
    quiet = fault == NONE
    return Script(
        victim=-1 if quiet else victim,
        kill_step=-1 if quiet else kill_step,
        sending=sending,
        layer=generator.randrange(layers),
        backward=generator.random() < 0.5,
        message=generator.randrange(2 * (num_peers - 1)),
        join_step=2 * steps // 3,
    )
