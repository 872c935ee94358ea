"""What a parser of another tool's output hands over, and how its numbers become base units without a rounding error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from paceline.base.errors import UserError
from paceline.base.families.family import Scalar

MICRO, ONE, MEGA, GIGA, PERCENT = -6, 0, 6, 9, -2
"""Powers of ten from the tools' units to base units; all of these tools mean 10^6 and 10^9 by MB and GB."""
MAX_DIGITS = 400
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number as it was written, and the same in base units."""

    text: str
    unit: str
    """The unit that the tool wrote."""
    base: float | None
    """The double nearest to the exact product; None where the tool wrote NaN."""


@dataclass(slots=True, kw_only=True)
class Reading:
    """One technique at one point for one metric, as another tool reported it."""

    label: str
    params: Mapping[str, Scalar]
    metric: str
    numbers: list[Number]
    where: str
    """``file:line`` of the first number."""
    launch: int = 0
    failure: tuple[str, str] | None = None
    """Status and reason when the tool itself called the result wrong."""
    reported: dict[str, Any] = field(default_factory=dict)
    """What the tool says about correctness and effort, unverified."""
    flags: tuple[str, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)
    """Metrics beside this one that the tool's output does not tell, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A parsed file of another tool."""

    tool: str
    tool_version: str | None
    measured: str | None
    """When, in the tool's own words."""
    readings: list[Reading]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Configuration that the file states."""
    host_class: str | None = None
    device: Mapping[str, Any] | None = None
    not_kept: tuple[str, ...] = ()
    """Parts of the file that are left out, each with the reason."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Lines that are no results and were left out, by what wrote them."""
    notes: tuple[str, ...] = ()
    """What was merged, shortened, cut or failed, a sentence each."""


def number(text: str, power: int, unit: str, where: str) -> Number:
    """Read a decimal number and scale it by a power of ten with a single rounding.

    Raises:
        UserError: Not a number, infinite, or beyond what a double holds.
    """
    if text.strip().lower() in ("nan", "-nan"):
        return Number(text=text, unit=unit, base=None)
    if len(text) > MAX_DIGITS or not _DECIMAL.fullmatch(text):
        raise UserError(f"'{text[:40]}' is not a finite number", where=where)
    exact = Decimal(text).scaleb(power, context=Context(prec=2 * MAX_DIGITS))
    if abs(exact.adjusted()) > 290:
        raise UserError(f"'{text[:40]}' is beyond what can be kept", where=where)
    return Number(text=text, unit=unit, base=float(exact))


def whole(text: str, where: str, what: str, *, least: int = 0) -> int:
    """Read a whole number.

    Raises:
        UserError: Not a whole number, or below ``least``.
    """
    digits = text.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18) or int(text) < least:
        raise UserError(
            f"{what} '{text[:40]}' is not accepted", where=where, expected=f"a whole number from {least}"
        )
    return int(text)
