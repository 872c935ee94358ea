"""Techniques are launched in parts: no test waits for more than one part, whichever test is the first."""

from __future__ import annotations

from collections.abc import Iterable

SIZE = 3
"""Techniques that are launched together: few enough that the slowest end within three minutes on a machine that is four
times slower than two cores of an AMD EPYC, where six of training took a minute and a half at four ranks."""


def parts_of(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return names in order, in parts."""
    ordered = sorted(set(names))
    return tuple(tuple(ordered[i : i + SIZE]) for i in range(0, len(ordered), SIZE))


def part_with(name: str, parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the part that holds a name."""
    (found,) = (part for part in parts if name in part)
    return found
