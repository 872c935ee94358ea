"""When ranks' models hold the same weights: what a technique says of it, and what was seen in a proof.

Looked at are the weights at which every step's gradients are taken, between ``forward_backward`` and
``exchange_gradients``, so that what a forward synchronises counts as the round's end that it belongs to; and those that
are left after ``finish``. Schedules:

- ``always``: all ranks' models are the same, bit for bit.
- ``rounds``: they are the same at the first step of every round of ``sync_every`` steps and at the end, and no two of
  them in between.
- ``own-rounds``: so at the first step of every round of those that the replica lists (``round_ends``).
- ``pairs``: as ``rounds``, of two ranks each: ⌊n/2⌋ pairs after the first round, which all begin alike; later on no
  three are the same, since who meets a new partner brings along what he had from another. Two ranks are always a pair.
- ``pairs-then-all``: as ``pairs``, and after the last step all are the same.
- ``never``: no two are the same after the first step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from paceline.families.training.core.planning.promises import Schedule

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
ROUNDS = ("rounds", "pairs", "pairs-then-all")
"""Those of techniques with rounds, whose option says how many steps they have."""
PERIOD = "sync_every"
SHARED = "-"
"""In the place of a digest: the rank does not hold a whole model."""


def breach(schedule: str, options: Mapping[str, Any]) -> str | None:
    """Say why a schedule cannot be held against anything, or None where it can."""
    if schedule not in SCHEDULES:
        return f"its property agree is one of {', '.join(SCHEDULES)}, and not '{schedule}'"
    if schedule in ROUNDS and PERIOD not in options:
        return f"its property agree says '{schedule}', and it has no option {PERIOD}"
    return None


def mismatch(
    schedule: str, seen: Sequence[Sequence[str]], period: int, ends: Collection[int] = ()
) -> str | None:
    """Say where ranks' models were not as alike as a schedule has it, or None.

    Args:
        schedule: One of ``SCHEDULES``.
        seen: For every step, and after the end, the digest of each rank's model.
        period: Steps of a round.
        ends: Steps with which rounds end that are not all alike.
    """
    # Ranks that share a model's parameters hold different ones by design: there are no replicas to compare.
    if any(SHARED in row for row in seen):
        return None
    ranks, last, met = len(seen[0]), len(seen) - 1, 0
    for at, row in enumerate(seen):
        # How many ranks share each digest: the pattern of a schedule, whichever ranks they are.
        sizes = sorted(Counter(row).values(), reverse=True)
        # Digests are taken where gradients are taken, so step at sees the exchange that ended the round before it.
        own = schedule == "own-rounds"
        ends_round = at == last or (at - 1 in ends if own else at % period == 0)
        merged = schedule == "pairs-then-all" and at == last
        if at == 0 or merged or schedule == "always" or (schedule in ("rounds", "own-rounds") and ends_round):
            fits = sizes == [ranks]
        elif schedule in ("pairs", "pairs-then-all") and ends_round:
            met += 1
            # All begin alike, so pairs of the first meeting must be equal; later partners bring different pasts.
            all_meet = met == 1 or ranks == 2
            fits = sizes == [2] * (ranks // 2) + [1] * (ranks % 2) if all_meet else sizes[0] <= 2
        else:
            # All different in between: a technique that exchanges more often than it says must not pass.
            fits = sizes == [1] * ranks
        if not fits:
            where = "at the end" if at == last else f"in step {at + 1}"
            return f"{where} ranks' models are {_alike(sizes)}, and its property agree says '{schedule}'"
    return None


def _alike(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return "all the same"
    if sizes[0] == 1:
        return "all different"
    return f"the same in groups of {', '.join(map(str, sizes))}"
