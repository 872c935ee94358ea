"""JSON that another process or another person wrote, within limits: numbers that are some, and nesting that ends.

What is read here can be written into a record, and read again from it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from paceline.base.units import MAX_INTEGER

MAX_DEPTH = 64
"""Of lists and tables within each other in a line of a record."""
_HALVES = re.compile("[\ud800-\udfff]")


def loads(text: str | bytes, *, depth: int = MAX_DEPTH) -> Any:
    """Read a JSON text, bytes of which are UTF-8; halves of surrogate pairs become U+FFFD.

    Args:
        text: The text.
        depth: Lists and tables that may lie within each other.

    Raises:
        ValueError: It is not JSON, a number is none or too large, or it is nested too deeply.
    """
    whole = text if isinstance(text, str) else text.decode("utf-8")
    try:
        data = json.loads(whole, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"nested more than {depth} deep") from None
    if not within([data], depth + 1):
        raise ValueError(f"nested more than {depth} deep")
    return _whole_text(data) if "\\ud" in whole or "\\uD" in whole else data


def within(values: Iterable[Any], room: int = MAX_DEPTH) -> bool:
    """Tell whether numbers are finite, integers within ``MAX_INTEGER``, and lists and tables not too deep.

    Args:
        values: Plain data; what is none, such as a model, is not looked into.
        room: Levels that there may be, these values' own among them.
    """
    if not room:
        return False
    for value in values:
        kind = type(value)
        if kind is str or value is None:
            continue
        if kind is float:
            fits = math.isfinite(value)
        elif kind is int:
            fits = -MAX_INTEGER <= value <= MAX_INTEGER
        elif kind is dict:
            fits = within(value.values(), room - 1)
        elif kind is list or kind is tuple:
            fits = (
                all(map(math.isfinite, value))
                if set(map(type, value)) == {float}
                else within(value, room - 1)
            )
        else:
            continue
        if not fits:
            return False
    return True


def _whole_text(value: Any) -> Any:
    """Return a value in which every text is Unicode: half of a surrogate pair can be neither printed nor hashed."""
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(part) for key, part in value.items()}
    return [_whole_text(part) for part in value] if isinstance(value, list) else value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _integer(digits: str) -> int:
    if len(digits) > len(str(MAX_INTEGER)) + 1 or abs(int(digits)) > MAX_INTEGER:
        raise ValueError(f"{digits[:20]}… is too large a number")
    return int(digits)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:20]} is not a finite number")
    return number
