"""What makes a point legal whatever the operation, and how long a call takes; free of torch."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.families.collectives.core.planning.operation import SIZE, operation_of
from paceline.families.collectives.core.planning.sizes import ITEM_BYTES, number

UNSIZED_BYTES = 1 << 20
"""What an operation without a size moves, for the estimate."""
SCENARIO_S = 8.0
"""What a scenario takes, for the estimate."""


def problems(params: Params, *, own: Sequence[str] = ()) -> list[str]:
    """Return what makes a resolved point illegal, in words.

    Args:
        params: Of the point.
        own: What the operation itself has found.
    """
    operation = operation_of(params)
    found: list[str] = []
    ranks = number(params, "ranks")
    if ranks < operation.min_ranks:
        found.append(f"{operation.name} needs at least {number_of(operation.min_ranks, 'rank')}, not {ranks}")
    if operation.sized:
        # Sizes are rounded down to equal shares: below one element a rank nothing would be left.
        least = ITEM_BYTES[str(params["dtype"])] * (ranks if operation.sharded else 1)
        if number(params, SIZE) < least:
            found.append(f"size_bytes {params['size_bytes']} holds less than one element a rank ({least} B)")
    found += own
    if "root" in params and number(params, "root") >= ranks:
        found.append(f"root {params['root']} is not one of {number_of(ranks, 'rank')}")
    group = number(params, "group_ranks") if params.get("group_ranks") else 0
    if group and ranks % group:
        found.append(f"{number_of(ranks, 'rank')} cannot be split into groups of {group}")
    if str(params["dtype"]).startswith("int") and params["payload"] != "integers":
        found.append(f"payload {params['payload']} needs a floating dtype, not {params['dtype']}")
    return found


def estimate_s(params: Params) -> float:
    """Return the seconds of one call on two slow cores."""
    ranks = number(params, "ranks")
    size = number(params, SIZE) if operation_of(params).sized else UNSIZED_BYTES
    return 0.0006 * ranks + size * ranks / 2e9


def scenario_s(params: Params) -> float:
    """Return the seconds of a scenario."""
    return SCENARIO_S
