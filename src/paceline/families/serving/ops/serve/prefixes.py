"""The most that a cache could have found: what prompts share, had everything stayed that was ever computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def most_hits(prompts: Collection[Sequence[int]], block_size: int) -> int:
    """Return prompt tokens that need not be computed when each full block of a beginning is computed once.

    A prompt's last token is always computed, so of its full blocks one that ends with that token can be found by
    others and not by itself.

    Args:
        prompts: Whole prompts; what answers leave in the cache is not counted.
        block_size: Tokens of a block.
    """
    found: dict[tuple[int, ...], int] = {}
    given: set[tuple[int, ...]] = set()
    for prompt in prompts:
        findable = (len(prompt) - 1) // block_size
        for place in range(len(prompt) // block_size):
            beginning = tuple(prompt[: (place + 1) * block_size])
            if place < findable:
                found[beginning] = found.get(beginning, 0) + 1
            else:
                given.add(beginning)
    return block_size * sum(times - (beginning not in given) for beginning, times in found.items())
