"""What many tests of a module share is made once, also where it failed or outlasted the first test's time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def once(make: Callable[[K], V]) -> Callable[[K], V]:
    """Return a function that makes the value of each key once, and raises for a key whose first making failed.

    ``functools.cache`` keeps no exception: a launch that hangs would be made again by each of thirty tests.
    """
    made: dict[K, V] = {}
    begun: set[K] = set()

    @wraps(make)
    def value_of(key: K) -> V:
        if key not in made:
            assert key not in begun, (
                f"what {key!r} needs has failed before: see the first of these tests that failed"
            )
            begun.add(key)
            made[key] = make(key)
        return made[key]

    return value_of
