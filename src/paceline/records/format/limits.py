"""What the files of a store may hold at most: depth, numbers, names. Every reader of their lines goes through here.

Whoever writes such a file may be another version or somebody else. What is beyond a limit is a ``ValueError`` that says
which one: it is one problem of one line, and never the end of a command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_core import from_json

from paceline.base.files.plain_data import MAX_DEPTH, loads, within
from paceline.base.units import MAX_INTEGER

MAX_NAME = 1024
"""Characters of a name: test frameworks name a case by its file and all its parameters."""
NAME_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]*$"
"""Names have no control characters: they would reach a terminal, and two names could look alike."""
MAX_COUNT = 2**53
"""Largest number of things that every reader has exactly."""
MAX_LAUNCH, MAX_RANKS = 10**6, 10**7
MOST_SAID = 300
"""Characters that a message has of what is wrong with a line."""

Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=MAX_NAME)]
Number = Annotated[int, Field(ge=0, le=MAX_COUNT)]
LaunchNumber = Annotated[int, Field(ge=0, le=MAX_LAUNCH)]
NumberOfRanks = Annotated[int, Field(ge=1, le=MAX_RANKS)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-z][0-9a-z-]{0,63}$")]


def decoded(text: str | bytes) -> dict[str, Any]:
    """Return the table of a JSON text, bytes of which are UTF-8; halves of surrogate pairs become U+FFFD.

    pydantic's parser takes a quarter of the time of the standard library's, which reads what it does not (halves of
    surrogate pairs) and says what is wrong with numbers that no measurement can have.

    Raises:
        ValueError: It is not JSON, not a table, or beyond a limit.
    """
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError:
        data = None
    if isinstance(data, dict) and within(data.values()):
        return data
    data = loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def check_limits(values: Iterable[Any]) -> None:
    """Refuse values that no line of a record may hold, before it is written.

    Raises:
        ValueError: A number without end, an integer that is too large, or what is nested too deeply.
    """
    if not within(values):
        raise ValueError(
            f"it holds a number that is not finite, an integer beyond {MAX_INTEGER}, or more than {MAX_DEPTH} levels"
        )


def said(error: ValueError) -> str:
    """Return in one line what is wrong with what was read, and in which of its fields."""
    text = str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        if first["type"] == "string_pattern_mismatch" and first["ctx"]["pattern"] == NAME_PATTERN:
            text = "a name has control characters"
        text = f"{field}: {text}" if field else text
    line = (text.splitlines() or [""])[0]
    return line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]}…"
