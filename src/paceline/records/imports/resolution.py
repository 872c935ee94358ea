"""Cells that tell less than their metric: rounded away by the tool's own columns, or not defined at all.

nccl-tests prints bandwidths with two decimals of GB/s: 8 bytes in 46 µs read 0.00, and 512 bytes 0.01. Such a cell is
no number to compare. The column of times tells more, and size over time is how the tool computes a bandwidth
(nccl-tests, ``doc/PERFORMANCE.md``): what a coarse cell was rounded from.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from paceline.base.families.family import Scalar
from paceline.records.imports.reading import Number

COARSE = 0.005
"""Relative error of rounding from which on a cell is taken for coarse."""
COMPUTED = "from-size-and-time"
"""Flag of a bandwidth that was computed, since its cell is coarse."""
BELOW_RESOLUTION = "below-resolution"
"""Flag of samples of which some, but not all, are zero."""
_PER_RANK = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "send_recv", "hypercube")


def bus_factor(op: str, ranks: int) -> float | None:
    """Return what an algorithm bandwidth is multiplied by for the bus bandwidth; None for an operation of others.

    Args:
        op: Operation, as parameters have it.
        ranks: Of a group.
    """
    if op in _PER_RANK:
        return (2.0 if op == "all_reduce" else 1.0) * (ranks - 1) / ranks
    return 1.0 if op in _WHOLE else None


def is_coarse(text: str) -> bool:
    """Tell whether rounding may have moved a written number by more than ``COARSE``, or to zero."""
    value = Decimal(text)
    return not value or _rounding(text) > COARSE * abs(float(value))


def bandwidth(
    name: str, written: Number, time: Number, params: Mapping[str, Scalar]
) -> tuple[Number, tuple[str, ...]] | str:
    """Return a bandwidth with its flags, or why the cell tells none.

    Args:
        name: ``algbw`` or ``busbw``.
        written: The cell.
        time: The cell of the time beside it.
        params: Of the line: ``op``, ``size_bytes`` and ``ranks``, where the file tells them.
    """
    ranks, factor = params.get("ranks"), 1.0 if name == "algbw" else None
    if name == "busbw" and isinstance(ranks, int):
        factor = bus_factor(str(params["op"]), ranks)
    if factor == 0:
        return "the bus bandwidth of one rank is not defined"
    if written.base is None or not is_coarse(written.text):
        return written, ()
    size = params["size_bytes"]
    assert isinstance(size, int)
    if factor is not None and time.base and size:
        exact = size / time.base * factor
        allowed = _rounding(written.text) * 1e9 + exact * _rounding(time.text) / float(time.text)
        if abs(exact - written.base) <= 1.001 * allowed:
            return Number(text=written.text, unit=written.unit, base=exact), (COMPUTED,)
    return f"{written.text} {written.unit} is below the resolution of the column, and size and time do not tell it"


def unresolved(numbers: list[Number], unit: str) -> str | None:
    """Say why samples are no numbers: times and rates of zero were below what the tool writes.

    Args:
        numbers: What was written.
        unit: Of the metric; shares and counts may be zero.
    """
    is_time_or_rate = unit == "s" or unit.endswith("/s")
    if is_time_or_rate and all(n.base == 0 for n in numbers):
        return f"{numbers[0].text} {numbers[0].unit}: below the resolution of what the tool writes"
    return None


def flags_of(numbers: list[Number], unit: str) -> tuple[str, ...]:
    """Return the flag of samples of which some are zero."""
    some = (unit == "s" or unit.endswith("/s")) and any(n.base == 0 for n in numbers)
    return (BELOW_RESOLUTION,) if some else ()


def _rounding(text: str) -> float:
    """Return half a unit of a written number's last digit."""
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)  # of a number that is finite
    return 0.5 * 10.0**exponent
