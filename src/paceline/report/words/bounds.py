"""Numbers beside a bound: written with as many digits as it takes to lie, as written, on the side on which they lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from paceline.stats.estimates import Estimate

LEAST_DIGITS, MOST_DIGITS = 3, 15


def with_ends(found: Estimate, bounds: Sequence[float], mark: str = "") -> str:
    """Write a value with its ends so that none of them seems to lie at a bound, or beyond, that does not."""
    ends = () if found.low is None or found.high is None else (found.low, found.high)
    numbers = (found.value, *ends)
    digits = next((n for n in range(LEAST_DIGITS, MOST_DIGITS) if _tells(numbers, bounds, n)), MOST_DIGITS)
    text = f"{written(found.value, digits)}{mark}"
    if not ends or ends[0] == ends[1]:
        return text
    return f"{text} [{', '.join(written(end, digits) for end in ends)}]"


def _tells(numbers: Iterable[float], bounds: Sequence[float], digits: int) -> bool:
    """Return whether numbers of so many digits lie on the same sides of the bounds as they do with all digits."""
    return all(
        _side(float(written(number, digits)), bound) == _side(number, bound)
        for number in numbers
        for bound in bounds
    )


def _side(number: float, bound: float) -> int:
    """Return -1, 0 or 1; what differs in the last places of floats alone is equal."""
    if math.isclose(number, bound, rel_tol=1e-12):
        return 0
    return 1 if number > bound else -1


def written(value: float, digits: int) -> str:
    """Write a number with so many significant digits, more where it has more before the point."""
    if 100 <= abs(value) < 1e6:
        return f"{value:.{max(0, digits - len(str(int(abs(value)))))}f}"
    return f"{value:.{digits}g}"
