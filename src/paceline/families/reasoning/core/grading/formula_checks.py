"""What the library for formulas forgives and should not, and what it does not find: numbers held against each other.

Runs in the process that has loaded the library, on its parsed formulas. Two are checked by their values: relative to
their size, so that tiny ones are not all nothing; and, where variables are left, at points of both signs.
"""

from __future__ import annotations

import importlib
import random
from typing import Any

DIGITS = 60
EXACT = 1e-40
"""Largest relative difference of two values without decimals: the library drops what is below 1e-15 in itself."""
ROUNDED = 1e-5
"""And where a side is written with decimals: six digits are the same."""
NUM_POINTS = 24
NUM_QUICK_POINTS = 4
MIN_POINTS = 5
"""At which both formulas are real numbers, of those that are tried."""
MAX_VARIABLES = 3


def are_too_far(one: Any, other: Any) -> bool:
    """Tell whether two formulas that the library calls equal differ in their values, or in one of a tuple or matrix."""
    sympy: Any = importlib.import_module("sympy")
    # The library reads some pairs as open intervals.
    one, other = (sympy.Tuple(x.start, x.end) if isinstance(x, sympy.Interval) else x for x in (one, other))
    ordered = (sympy.Tuple, sympy.MatrixBase)
    if isinstance(one, ordered) and isinstance(other, ordered):
        parts = list(one), list(other)
        return len(parts[0]) == len(parts[1]) and any(map(are_too_far, *parts))
    if isinstance(one, sympy.FiniteSet) and isinstance(other, sympy.FiniteSet):
        # Every element needs a partner; which one, their order does not say.
        return any(all(are_too_far(a, b) for b in other.args) for a in one.args)
    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)) or one.has(sympy.UnevaluatedExpr):
        return False
    if other.has(sympy.UnevaluatedExpr):
        return False
    if one.free_symbols or other.free_symbols:
        return _compared(one, other, NUM_QUICK_POINTS) == "different"
    values = [side.doit().evalf(DIGITS) for side in (one, other)]
    if not all(value.is_number and value.is_finite for value in values):
        return False
    allowed = ROUNDED if one.has(sympy.Float) or other.has(sympy.Float) else EXACT
    size = max(abs(value) for value in values)
    return bool(abs(values[0] - values[1]) > allowed * size)


def are_one_function(one: Any, other: Any) -> bool:
    r"""Tell whether two formulas with variables are equal wherever both are real, as ``\sqrt{1/n}``, ``1/\sqrt{n}``."""
    sympy: Any = importlib.import_module("sympy")
    if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)):
        return False
    return _compared(one, other, NUM_POINTS) == "equal"


def _compared(one: Any, other: Any, num_points: int) -> str:
    """Return ``equal``, ``different`` or ``unknown`` of two formulas with variables, by their values at points."""
    sympy: Any = importlib.import_module("sympy")
    names = sorted({symbol.name for symbol in one.free_symbols})
    if names != sorted({s.name for s in other.free_symbols}) or not 0 < len(names) <= MAX_VARIABLES:
        return "unknown"
    allowed = ROUNDED if one.has(sympy.Float) or other.has(sympy.Float) else EXACT
    rng, num_compared = random.Random(0), 0
    for place in range(num_points):
        # Both signs of every variable: the root of a square is no variable.
        at = {
            name: sympy.Rational(rng.randint(1, 400), 97) * (1 if place >> bit & 1 else -1)
            for bit, name in enumerate(names)
        }
        values = [
            side.subs({symbol: at[symbol.name] for symbol in side.free_symbols}).doit().evalf(DIGITS)
            for side in (one, other)
        ]
        if not all(value.is_real and value.is_finite for value in values):
            continue
        num_compared += 1
        if abs(values[0] - values[1]) > allowed * max(abs(value) for value in values):
            return "different"
    return "equal" if num_compared >= MIN_POINTS else "unknown"
