"""Fields of a problem's row: found whatever their case, checked, and what is wrong told with file, line and key."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import UserError
from paceline.families.reasoning.core.answers.text import Kind
from paceline.families.reasoning.core.planning.naming import PARTIAL
from paceline.families.reasoning.core.problems.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class TextProblem:
    """One question in words, with its answer."""

    key: int
    """Digest of the question, and of its choices in no order: equal in every file that has the problem."""
    level: int
    """Difficulty from 1 to 5 where the data set states one, else 0."""
    question: str
    """With the choices, where there are some."""
    answer: str
    """The truth: a number, a formula, or the letter of a choice."""
    kind: Kind
    choices: str = ""
    """The letters of its choices, where there are some."""


def problem(question: str, answer: str, kind: Kind, *, level: int = 0) -> TextProblem:
    """Return a problem without choices."""
    return TextProblem(key=key_of(question), level=level, question=question, answer=answer, kind=kind)


def text_of(row: Row, *names: str) -> str:
    """Return the text of the first of these fields that a row has, without white space around it."""
    value, name = value_of(row, *names), name_of(row, *names)
    if not isinstance(value, str):
        is_nan = isinstance(value, float) and math.isnan(value)
        raise wrong(row, str(name), f"it is {'NaN' if is_nan else type(value).__name__}", "text")
    if not value.strip():
        raise wrong(row, str(name), "it is empty", "text")
    return value.strip()


def value_of(row: Row, *names: str) -> Any:
    """Return what the first of these fields holds that a row has.

    Raises:
        UserError: It has none of them.
    """
    name = name_of(row, *names)
    if name is None:
        have = ", ".join(sorted(row.values)) or "none"
        raise wrong(row, names[0], "the field is missing", f"a field {' or '.join(names)}; there are: {have}")
    return row.values[name]


def name_of(row: Row, *names: str) -> str | None:
    """Return the field of one of these names as the row spells it, whatever its case."""
    spelled = {name.casefold().strip(): name for name in row.values}
    return next((spelled[name.casefold()] for name in names if name.casefold() in spelled), None)


def wrong(row: Row, key: str, what: str, expected: str) -> UserError:
    """Return the error of a row's field."""
    return UserError(
        what,
        where=f"{row.where}:{key}",
        expected=expected,
        fix=f"correct the row, name the format that the file has, or end the problems' name in '{PARTIAL.strip()}' to "
        "leave such rows out and count them",
    )


def digest(text: str) -> bytes:
    """Return 8 bytes that stand for a text."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def key_of(text: str) -> int:
    """Return the number of a problem's text."""
    # White space aside, which files differ in; 63 bits, so that it fits a signed number.
    return int.from_bytes(digest(" ".join(text.split()))) >> 1
