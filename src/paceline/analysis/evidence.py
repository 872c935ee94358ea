"""Which of several measurements of a point counts: boards show it, and claims are decided by it.

A run in which others took the machine stands behind all others. Among the rest the run of the better grade comes first,
of those one with as many launches as the leaderboard asks for or more than others, and of those the newest. Points of
another version of a suite, of another host class, runner or image never stand in for each other.
"""

from __future__ import annotations

import json
from dataclasses import replace

from paceline.analysis.points import LEADERBOARD_LAUNCHES, Point, grade_of
from paceline.base.families.family import load_family
from paceline.records.format.record import Run

OFF_BOARD_REASONS = frozenset({"calibrate", "correction"})
"""Runs of these reasons are about the harness or about records, and say nothing about techniques."""
PointKey = tuple[str | None, ...]
"""Suite, host class, runner, image class and parameters."""


def params_key(point: Point) -> str:
    """Return a point's parameters as canonical text."""
    return json.dumps(dict(point.params), sort_keys=True)


def with_defaults(point: Point) -> Point:
    """Return a point with every parameter: one that did not exist when it was measured has its default."""
    family = load_family(point.family)
    operation = str(point.params.get(family.operation_key, ""))
    defaults = {p.name: p.default for p in family.parameters_for(operation) if not p.required}
    return replace(point, params={**defaults, **point.params})


def image_class(run: Run) -> str | None:
    """Return the class of the container image; None outside a container."""
    found = (run.container or {}).get("image_class")
    return None if found is None else str(found)


def place_of(point: Point) -> tuple[str, str, str, str | None]:
    """Return suite, host class, runner and image class: what may stand in one table."""
    return (*point.board, image_class(point.run))


def point_key(point: Point) -> PointKey:
    """Return what a point is in whatever run it was measured: its place and its parameters."""
    return (*place_of(point), params_key(point))


def evidence(point: Point) -> tuple[bool, int, int, str]:
    """Return what decides between two measurements of a point: whether others took the machine, grade, launches, time.

    Launches count up to as many as the leaderboard asks for.
    """
    tried = {m.launch for found in point.failures.values() for m in found}
    for cell in point.cells.values():
        tried.update(cell.values)
    launches = min(len(tried), LEADERBOARD_LAUNCHES)
    quiet = not any(cell.busy for cell in point.cells.values())
    return quiet, "DCBA".index(grade_of(point.run, launches)), launches, point.run.run_id
