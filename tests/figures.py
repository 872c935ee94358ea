"""Figures of measured tests: what was measured, its unit and its bounds, recorded beside the outcome and then held."""

from __future__ import annotations

import math
from collections.abc import Callable


class Figures:
    """Records figures of one test and holds them to their bounds.

    Args:
        record: Takes a name and what is told of it (pytest's ``record_property``).
    """

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def __call__(
        self,
        what: str,
        value: float | None,
        *,
        unit: str,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Record a figure, then fail where it is no number or outside of its bounds.

        Args:
            what: Was measured, in words.
            value: In the unit.
            unit: Such as ``s`` or ``ratio``.
            least: Lower bound, in the unit.
            most: Upper bound, in the unit.
        """
        number = value is not None and math.isfinite(value)
        figure = {"value": value if number else None, "unit": unit, "least": least, "most": most}
        self._record(what, figure)
        assert number, f"{what} is no number: {value}"
        assert least is None or value >= least, f"{what}: {value:.6g} {unit}, expected {least:g} at least"
        assert most is None or value <= most, f"{what}: {value:.6g} {unit}, expected {most:g} at most"
