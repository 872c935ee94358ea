"""Sizes and bandwidths of a point, by the conventions of nccl-tests; free of torch.

Conventions (nccl-tests, doc/PERFORMANCE.md): n ranks, GB = 10^9 bytes, S = bytes that enter the algorithm bandwidth
S/t; the bus bandwidth is the algorithm bandwidth times a factor that makes it comparable with a link.
"""

from __future__ import annotations

from paceline.base.families.family import DerivedMetric, Params
from paceline.families.collectives.core.planning.operation import operation_of

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "int32": 4, "int64": 8}


def element_count(params: Params) -> int:
    """Return the elements of S after rounding down to whole, equal shares."""
    count = number(params, "size_bytes") // ITEM_BYTES[str(params["dtype"])]
    ranks = number(params, "ranks")
    # The operations have equal shares, so the remainder is left out of S, and out of the bandwidth.
    return count // ranks * ranks if operation_of(params).sharded else count


def algorithm_bandwidth(params: Params, latency_s: float) -> float | None:
    """Return S/t in bytes per second; None where S is not defined."""
    if not operation_of(params).sized or latency_s <= 0:
        return None
    return element_count(params) * ITEM_BYTES[str(params["dtype"])] / latency_s


def bus_bandwidth(params: Params, latency_s: float) -> float | None:
    """Return algbw × factor; None for one rank, where no byte needs to move."""
    factor = operation_of(params).bus_factor
    bandwidth = algorithm_bandwidth(params, latency_s)
    ranks = number(params, "ranks")
    if factor is None or bandwidth is None or ranks == 1:
        return None
    return bandwidth * factor(ranks)


def number(params: Params, key: str) -> int:
    """Return a parameter that counts something."""
    value = params[key]
    assert isinstance(value, int)
    return value


BANDWIDTHS = (
    DerivedMetric(name="algbw", unit="B/s", source="latency", formula="S / t", compute=algorithm_bandwidth),
    DerivedMetric(
        name="busbw", unit="B/s", source="latency", formula="S / t × factor(n)", compute=bus_bandwidth
    ),
)
