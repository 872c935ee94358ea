"""Refuses what a technique may not ask for: other classes than the contract's, and what a question does not offer."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType


class PlanError(Exception):
    """A technique asked for something that a question does not offer; its text is the reason in the record."""


def check_plain(asked: object, kinds: tuple[type, ...], what: str) -> None:
    """Refuse what is not exactly of these classes, with plain numbers: other classes bring methods of their own.

    Raises:
        PlanError: It is something else.
    """
    if type(asked) not in kinds:
        raise PlanError(f"{type(asked).__name__} is not {what}")
    for field_name in (f.name for f in fields(asked)):  # type: ignore[arg-type]  # all kinds are dataclasses
        value = getattr(asked, field_name)
        values = value if type(value) is tuple else (value,)
        if not all(type(one) in (int, bool, NoneType) for one in values):
            raise PlanError(
                f"{field_name} of {type(asked).__name__} is no plain number: {type(value).__name__}"
            )
