"""Counted nouns: ``1 point``, ``3 points``, ``1 result is``, ``2 results are``."""

from __future__ import annotations

HISSING = ("s", "x", "z", "ch", "sh")
"""Endings behind which the plural needs another syllable."""


def number_of(number: float, noun: str, plural: str | None = None, *, form: str = "") -> str:
    """Write a number with its noun, which is singular for what is shown as 1.

    Args:
        number: How many.
        noun: Of one; its verb may follow: ``result is``.
        plural: Of several; None for the regular one.
        form: How the number is written, as in a format specification.
    """
    shown = format(number, form)
    return f"{shown} {noun if shown == '1' else plural or plural_of(noun)}"


def plural_of(noun: str) -> str:
    """Return the regular plural: points, launches, entries."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(HISSING) else f"{noun}s"
