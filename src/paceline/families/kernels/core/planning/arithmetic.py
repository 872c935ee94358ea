"""Operations and compulsory traffic of a call, free of torch, and the rates that follow from them.

Formulas count what the result needs, not what an implementation spends: a multiply-add is two operations, every input
is read once and every output written once. A technique that recomputes or spills gains nothing in TFLOP/s or GB/s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paceline.base.families.family import DerivedMetric, Params

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
CALL_S, FLOPS_PER_S, BYTES_PER_S = 2e-5, 2e10, 4e9
"""Of two slow cores, for estimates alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What a call of an operation costs at the least."""

    flops: Callable[[Params], float]
    """Floating-point operations of one call."""
    traffic: Callable[[Params], float]
    """Compulsory bytes of one call."""
    operands: str | None = None
    """Element type of the factors where it is not the case's dtype, which then is the result's."""

    def estimate_s(self, params: Params) -> float:
        """Return rough seconds of a call, for the plan."""
        return CALL_S + self.flops(params) / FLOPS_PER_S + self.traffic(params) / BYTES_PER_S


def integer(params: Params, name: str) -> int:
    """Return an integer parameter."""
    value = params[name]
    assert isinstance(value, int)
    return value


def item_bytes(params: Params) -> int:
    """Return the bytes of one element."""
    return ITEM_BYTES[str(params["dtype"])]


def product(params: Params, *names: str) -> int:
    """Return the product of integer parameters."""
    found = 1
    for name in names:
        found *= integer(params, name)
    return found


def rates(operations: Mapping[str, Arithmetic]) -> tuple[DerivedMetric, ...]:
    """Return the figures that reports derive from a latency.

    Args:
        operations: The arithmetic of each operation, by the name that a case's ``op`` has.
    """

    def flops_per_s(params: Params, seconds: float) -> float | None:
        flops = operations[str(params["op"])].flops(params)
        # A copy has no operations: a rate of zero would look like a result.
        return flops / seconds if flops and seconds > 0 else None

    def bytes_per_s(params: Params, seconds: float) -> float | None:
        return operations[str(params["op"])].traffic(params) / seconds if seconds > 0 else None

    return (
        DerivedMetric(
            name="arithmetic_rate",
            unit="FLOP/s",
            source="latency",
            formula="operations that the result needs / t",
            compute=flops_per_s,
        ),
        DerivedMetric(
            name="bandwidth",
            unit="B/s",
            source="latency",
            formula="compulsory bytes / t",
            compute=bytes_per_s,
        ),
    )
