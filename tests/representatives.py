"""Of many cases the first of each kind in the landing gate, and all of them in the full suite."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def first_of_each(cases: Iterable[tuple[Any, ...]], kind: Callable[[tuple[Any, ...]], Hashable]) -> list[Any]:
    """Mark all cases but the first of each kind as those of the full suite.

    Args:
        cases: Values of a parametrisation.
        kind: Returns what cases have in common of which one is enough.
    """
    seen: set[Hashable] = set()
    found = []
    for case in cases:
        found.append(pytest.param(*case, marks=[pytest.mark.full] if kind(case) in seen else []))
        seen.add(kind(case))
    return found
