"""A matrix product on a square grid of ranks: ``run(a_SS, b_SS, c_SS)``.

p = q² ranks form a q × q grid, rank r at row r // q and column r % q. Each holds one block of A and of B, S = side / q
elements wide, and ends with its block of C = A · B. The blocks of A and B may be overwritten.
"""

from __future__ import annotations

import math


def grid(world_size: int) -> int:
    """Return q for q² ranks; the root rounded down where the number of ranks is no square."""
    return math.isqrt(world_size)
