"""Rounds of local steps, and the outer step at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor  # whoever plans has none


def ends_round(step: int, sync_every: int, steps: int) -> bool:
    """Tell whether a round ends with a step; the last step ends a shorter one."""
    return (step + 1) % sync_every == 0 or step + 1 == steps


def round_ends(sync_every: int, steps: int) -> list[int]:
    """Return the steps with which a round of a run ends."""
    return [step for step in range(steps) if ends_round(step, sync_every, steps)]


def num_rounds(sync_every: int, steps: int) -> int:
    """Return the number of rounds in a run."""
    return -(-steps // sync_every)


def nesterov_(
    weights: Tensor, momentum: Tensor, gradient: Tensor, *, rate: float, momentum_share: float
) -> None:
    """Take a step of SGD with Nesterov momentum in place: m ← μ·m + g; w ← w − η·(g + μ·m). ``gradient`` is used up.

    The outer step of DiLoCo (Douillard et al., 2023), algorithm 1, as ``torch.optim.SGD`` defines it.

    Args:
        weights: w, of any shape.
        momentum: m, alike; zero before the first step.
        gradient: g, alike: the mean of w less what local steps have made of it.
        rate: η.
        momentum_share: μ.
    """
    # As torch's SGD with nesterov=True, which begins with m = g; from m = 0 that is the same.
    momentum.mul_(momentum_share).add_(gradient)
    weights.sub_(gradient.add_(momentum, alpha=momentum_share), alpha=rate)
