"""Where something was found, in words: a board's points by what tells them apart, as a sentence has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.analysis.points import Point
from paceline.report.tables.results import format_param
from paceline.report.words.names import param_label

PARAMETERS: Mapping[str, str] = {"ranks": "ranks", "questions": "questions", "devices": "devices"}
"""Parameters that are a count of things: written behind their number."""
NAMELESS = frozenset({"size_bytes", "dtype"})
"""Parameters whose value says what it is."""


def param_text(name: str, value: Any) -> str:
    """Write one parameter as a sentence has it: ``1 MiB``, ``4 ranks``, ``link 100mbit``."""
    text = format_param(name, value)
    if name in PARAMETERS:
        return f"{text} {PARAMETERS[name].removesuffix('s') if value == 1 else PARAMETERS[name]}"
    return text if name in NAMELESS else f"{param_label(name)} {text}"


def place_text(point: Point, keys: Sequence[str]) -> str:
    """Say at which of a board's points something was found; empty where a board has one point."""
    return ", ".join(param_text(key, point.params[key]) for key in keys if point.params.get(key) is not None)
