"""Quantities: what a launch says of its own scale, computed from what its record keeps; never stored, never compared.

A claim's premises ask for them: how many rounds were exchanged, how many tokens a parameter saw, how large a model was.
A metric is what techniques are compared by; a quantity is what decides whether a comparison can speak about a paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What a record keeps of one technique at one point in one launch."""

    params: Mapping[str, Any]
    """The point, in base units."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the technique."""
    ceilings: Mapping[str, Any] = field(default_factory=dict)
    """Limits and sizes that the operation wrote beside its numbers."""
    accounting: Mapping[str, Any] = field(default_factory=dict)
    """Counts, curves and timelines, as the operation wrote them."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By metric the launch's statistic, in the metric's unit."""
    host: Mapping[str, Any] = field(default_factory=dict)
    """Of the run: processor, cores, memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number that tells the scale of a measurement."""

    name: str
    unit: str
    doc: str
    """What it is, in one sentence, with its formula."""
    compute: Callable[[Witness], float | None]
    """Returns None where the launch does not tell."""

    def of(self, witness: Witness) -> float | None:
        """Return the quantity; None where the launch does not tell it, or tells it in another form."""
        try:
            found = self.compute(witness)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None
        return found if found is not None and math.isfinite(found) else None
