"""Pairs of ranks, drawn anew for every round; free of torch."""

from __future__ import annotations

import random
from collections.abc import Sequence


def partners(seed: int, number: int, members: Sequence[int]) -> dict[int, int]:
    """Return every paired rank's partner in a round; every rank draws the same pairs, and an odd one sits out.

    Args:
        seed: Equal on all ranks.
        number: Of the round.
        members: Ranks that take part.
    """
    ranks = list(members)
    # A text is seeded through SHA-512; hash() of it would differ between processes, and so would their pairs.
    random.Random(f"{seed}/{number}").shuffle(ranks)
    pairs = list(zip(ranks[::2], ranks[1::2], strict=False))
    return dict(pairs) | {b: a for a, b in pairs}
