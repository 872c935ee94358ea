"""Numbers guessed by counting and by halving."""

from __future__ import annotations

from collections.abc import Callable

from paceline import technique

Guess = Callable[[Callable[[int], bool]], int]


@technique(name="toy-counting", family="reasoning", implements=("toy",), summary="one number after the other")
def counting(limit: int) -> Guess:
    """Return the method."""

    def guess(too_low: Callable[[int], bool]) -> int:
        number = 0
        while too_low(number):
            number += 1
        return number

    return guess


@technique(name="toy-halving", family="reasoning", implements=("toy",), summary="half of the rest at a time")
def halving(limit: int) -> Guess:
    """Return the method."""

    def guess(too_low: Callable[[int], bool]) -> int:
        low, high = 0, limit - 1
        while low < high:
            middle = (low + high) // 2
            if too_low(middle):
                low = middle + 1
            else:
                high = middle
        return low

    return guess
