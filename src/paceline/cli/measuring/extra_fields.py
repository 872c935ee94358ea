"""Further fields of requests as ``paceline load --extra`` takes them: names with values, or objects of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from paceline.base.errors import UserError


def extra_fields(items: Sequence[str]) -> dict[str, Any]:
    """Return the further fields of requests: each item is ``KEY=VALUE``, or an object of JSON.

    A value that is JSON is what it says (``0.9``, ``true``, ``["a"]``), another one is a text.

    Raises:
        UserError: An item is neither, or a field is given twice.
    """
    found: dict[str, Any] = {}
    for item in items:
        for name, value in _fields_of(item).items():
            if name in found:
                raise UserError(
                    f"the field '{name}' is given twice", where=f"--extra={item}", expected="one value"
                )
            found[name] = value
    return found


def _fields_of(item: str) -> dict[str, Any]:
    name, separator, value = item.partition("=")
    if separator and re.fullmatch(r"[^\s{}\[\]\"',:=]+", name):
        return {name: _value(value)}
    read = _value(item)
    if isinstance(read, dict):
        return read
    raise UserError(
        "it is no field and no JSON object",
        where=f"--extra={item}",
        expected="""top_p=0.9, once for each field, or '{"top_p": 0.9}'""",
    )


def _value(text: str) -> Any:
    """Return what a text says in JSON; itself where it is none. NaN and infinity are texts: no JSON has them."""
    try:
        return json.loads(text, parse_constant=_not_in_json)
    except ValueError:
        return text


def _not_in_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
