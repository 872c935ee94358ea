"""Base units inside, human units at the edges.

Everything that is stored or computed is in bytes, seconds, bytes per second, or a bare count. Suites and runner
profiles may write ``4KiB``, ``100mbit`` or ``5ms``; reports scale on the way out. Link rates follow the network
convention (``mbit`` = 10^6 bits per second, stored as bytes per second); sizes are binary only when written
with an ``i`` (``KiB`` = 1024 bytes, ``kB`` = 1000 bytes).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

_NUMBER: Final = re.compile(
    r"\s*((?:[0-9]{1,40}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-zµ]*)\s*"
)
"""Bounded everywhere: a hostile file must not buy time or memory with digits."""

SIZE_UNITS: Final[dict[str, int]] = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
MAX_SIZE_BYTES: Final = 2**63 - 1
MAX_INTEGER: Final = 2**64
"""The largest integer that a suite may give and a record hold; seeds of 64 bits are the largest there are."""
RATE_UNITS: Final[dict[str, float]] = {
    "bit": 0.125,
    "kbit": 125.0,
    "mbit": 125e3,
    "gbit": 125e6,
    "tbit": 125e9,
}
DURATION_UNITS: Final[dict[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}


def _split(text: str, kind: str, units: Iterable[str]) -> tuple[str, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text[:40]}' is not a {kind}; write a number and one of: {', '.join(units)}")
    number, unit = match.groups()
    if unit not in units:
        problem = "has no unit" if not unit else f"has the unknown unit '{unit}'"
        raise ValueError(f"'{text}' {problem}; a {kind} takes one of: {', '.join(units)}")
    return number, unit


def parse_size(value: int | str) -> int:
    """Return a number of bytes from ``4KiB``, ``1.5MB`` or a bare int (already bytes).

    Raises:
        ValueError: Negative, fractional bytes, no unit on a string, or an unknown unit.
    """
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a size")
    if isinstance(value, int):
        size = Fraction(value)
    else:
        number, unit = _split(value, "size", SIZE_UNITS)
        size = Fraction(number) * SIZE_UNITS[unit]
    if size.denominator != 1 or not 0 <= size <= MAX_SIZE_BYTES:
        raise ValueError(f"'{str(value)[:40]}' is not a whole, non-negative number of bytes below 2^63")
    return int(size)


def parse_rate(value: str) -> float:
    """Return bytes per second from a link rate such as ``100mbit``; a bare number is refused."""
    number, unit = _split(value, "rate", RATE_UNITS)
    return _positive(float(number) * RATE_UNITS[unit], value)


def parse_duration(value: str | float) -> float:
    """Return seconds from ``5ms``, ``2s``, ``1.5h``, or from a bare number of seconds."""
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a duration")
    if isinstance(value, int | float):
        return _positive(value, value, zero=True)
    number, unit = _split(value, "duration", DURATION_UNITS)
    return _positive(float(number) * DURATION_UNITS[unit], value, zero=True)


def bounded(value: int) -> int:
    """Return an integer that a record can hold.

    Raises:
        ValueError: It is beyond ``MAX_INTEGER``.
    """
    if not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise ValueError("an integer beyond 2^64 is too large a number")
    return value


def finite(value: float) -> float:
    """Return a number as a float; NaN and what no float can hold are refused."""
    if not -sys.float_info.max <= value <= sys.float_info.max:
        raise ValueError(f"'{str(value)[:40]}' is not a finite number")
    return float(value)


def _positive(number: float, shown: object, *, zero: bool = False) -> float:
    if not 0 <= number <= sys.float_info.max or (number == 0 and not zero):
        raise ValueError(f"'{str(shown)[:40]}' must be {'non-negative' if zero else 'positive'} and finite")
    return float(number)


_DECIMAL: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def format_size(size_bytes: float) -> str:
    """Write bytes in binary units when they divide well, such as ``4 KiB``; otherwise with three digits."""
    for scale, unit in _BINARY:
        if abs(size_bytes) >= scale:
            return f"{_digits(size_bytes / scale)} {unit}"
    return f"{_digits(size_bytes)} B"


def format_rate(rate_bytes_per_s: float) -> str:
    """Write a link's rate as suites do, such as ``100mbit``, in the largest unit that leaves a whole part."""
    fitting = [unit for unit, size in RATE_UNITS.items() if rate_bytes_per_s >= size]
    unit = fitting[-1] if fitting else "bit"
    return f"{rate_bytes_per_s / RATE_UNITS[unit]:g}{unit}"


def format_duration(seconds: float) -> str:
    """Write seconds with three significant digits in ns, µs, ms, s, min or h."""
    magnitude = abs(seconds)
    if magnitude >= 5400:
        return f"{_digits(seconds / 3600)} h"
    if magnitude >= 120:
        return f"{_digits(seconds / 60)} min"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if magnitude >= scale:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns" if magnitude else "0 s"


def format_quantity(value: float, unit: str) -> str:
    """Write a value of a base unit for people: ``s``, ``B`` and rates are scaled, the rest get digits."""
    if unit == "s":
        return format_duration(value)
    if unit == "B":
        return format_size(value)
    if unit in ("B/s", "bit/s", "FLOP/s", "token", "token/s", "Hz"):
        for scale, prefix in _DECIMAL:
            if abs(value) >= scale:
                return f"{_digits(value / scale)} {prefix}{unit}"
        return f"{_digits(value)} {unit}"
    if unit in ("ratio", "1"):
        return _digits(value)
    digits = _digits(value)
    if digits == "1" and unit.isalpha():
        unit = unit.removesuffix("s")  # one call, two calls
    return f"{digits} {unit}".strip()


def _digits(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if value == int(value) and abs(value) < 1e4:
        return str(int(value))
    magnitude = abs(value)
    if magnitude >= 1e6 or magnitude < 1e-3:
        return f"{value:.3g}"
    if magnitude >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
