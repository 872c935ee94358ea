"""Which results stand on the leaderboard: one board for each suite and hardware, one measurement of each point.

A board holds a point as the best evidence gives it: the run of the better grade, and of those the newest. Points of
another version of the suite or under another contract never stand beside it; they are counted, and stay on the pages
of their runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from paceline.analysis.compare import confirm
from paceline.analysis.evidence import (
    OFF_BOARD_REASONS,
    evidence,
    image_class,
    params_key,
    place_of,
    with_defaults,
)
from paceline.analysis.points import Point, compared, points_of, sort_key
from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.records.store.folder import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One suite on one hardware."""

    suite: str
    family: str
    host_class: str
    runner: str
    image_class: str | None
    description: str
    tuning: Mapping[str, Any] | None
    """How the settings of techniques were chosen, by trials or in words; None where nothing is tuned."""
    points: tuple[Point, ...]
    """One for each combination of parameters, in the order of the parameters."""
    history: tuple[tuple[Point, ...], ...]
    """For each point all its measurements, newest first."""
    num_superseded: int
    """Measured points that are left out: another version of the suite, or another contract."""

    @property
    def slug(self) -> str:
        """File name of the board's page."""
        return slug(self.suite, self.runner, self.host_class, self.image_class or "")

    def only_of(self, runs: Collection[str]) -> bool:
        """Say whether nothing but some runs stands here."""
        return all(point.run.run_id in runs for point in self.points)

    def point_slug(self, point: Point) -> str:
        """File name of a point's page: stays the same when it is measured again."""
        return slug(self.suite, self.runner, self.host_class, self.image_class or "", params_key(point))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All boards, and why other results are on none."""

    boards: tuple[Board, ...]
    problems: tuple[str, ...]


@lru_cache(maxsize=1 << 14)
def slug(name: str, *parts: str) -> str:
    """Return a safe file name: a readable beginning and a digest of everything."""
    digest = hashlib.sha256(json.dumps([name, *parts]).encode()).hexdigest()[:10]
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return f"{readable}-{digest}" if readable else digest


Usable = Callable[[RunRecord], tuple[list[Point], list[str]]]


def select(records: Iterable[RunRecord], usable: Usable | None = None) -> Selection:
    """Group the points of all runs into boards; the work grows with the number of measurements.

    Args:
        records: All runs.
        usable: Gives a record's points, as ``usable_points`` does.
    """
    groups: dict[tuple[str, str, str, str | None], list[Point]] = {}
    problems: dict[str, None] = {}
    for record in sorted(records, key=lambda r: r.run_id):
        if record.run.reason in OFF_BOARD_REASONS:
            continue
        points, found = (usable or usable_points)(record)
        problems |= {f"run {record.run_id}: {problem}": None for problem in found}
        for point in points:
            groups.setdefault(place_of(point), []).append(with_defaults(point))
    keys = sorted(groups, key=lambda k: tuple(str(part) for part in k))
    return Selection(boards=tuple(_board(groups[k]) for k in keys), problems=tuple(problems))


def usable_points(record: RunRecord, found: Iterable[Point] | None = None) -> tuple[list[Point], list[str]]:
    """Return a record's points that can be shown, and what is wrong with the others or was left out of these.

    Args:
        record: The record.
        found: Its points, where somebody has them already; metrics that are unknown leave them.
    """
    points, problems = [], []
    for point in points_of(record) if found is None else found:
        problems += leave_unknown_out(point)
        problem = unusable(point)
        if problem == "":
            points.append(point)
        elif problem is not None:
            problems.append(problem)
    return points, problems


def leave_unknown_out(point: Point) -> list[str]:
    """Take metrics that the family does not have out of a point: another version's, or nobody's; say which."""
    try:
        family = load_family(point.family)
    except UserError:
        return []
    unknown = [name for name in point.metrics() if not family.has(name)]
    point.cells = {key: cell for key, cell in point.cells.items() if key[1] not in unknown}
    return [f"{point.suite}: the {point.family} family has no metric '{name}'" for name in unknown]


def unusable(point: Point) -> str | None:
    """Return "" when a point can stand on a board, None when it is internal, else what is wrong with it."""
    try:
        family = load_family(point.family)
        for name in compared(point.run, point.suite):
            family.metric(name)
    except UserError as error:
        return f"{point.suite}: {error.what}"
    contracts: dict[str, str] = {}
    for (_, metric), cell in point.cells.items():
        if contracts.setdefault(metric, cell.contract_id) != cell.contract_id:
            return f"{point.suite}: {metric} was measured under two contracts in one block"
    return None if family.internal else ""


def _board(points: Sequence[Point]) -> Board:
    """Choose among the measurements of one suite on one hardware; ``points`` are oldest first."""
    newest = points[-1]
    contracts: dict[str, str] = {}
    for point in reversed(points):
        if point.suite_version == newest.suite_version:
            for (_, metric), cell in point.cells.items():
                contracts.setdefault(metric, cell.contract_id)
    versions: dict[str, list[Point]] = {}
    for point in reversed(points):
        if point.suite_version == newest.suite_version and _under(point, contracts):
            versions.setdefault(params_key(point), []).append(point)
    for measured in versions.values():
        if len(measured) > 1:
            confirm(measured)
    chosen = sorted((max(v, key=evidence) for v in versions.values()), key=lambda p: sort_key(p.params))
    facts: Mapping[str, Any] = next((s for s in newest.run.suites if s["suite"] == newest.suite), {})
    return Board(
        suite=newest.suite,
        family=newest.family,
        host_class=newest.board[1],
        runner=newest.board[2],
        image_class=image_class(newest.run),
        description=str(facts.get("description", "")),
        tuning=facts.get("tuning"),
        points=tuple(chosen),
        history=tuple(tuple(versions[params_key(p)]) for p in chosen),
        num_superseded=len(points) - sum(len(v) for v in versions.values()),
    )


def _under(point: Point, contracts: dict[str, str]) -> bool:
    return all(contracts[metric] == cell.contract_id for (_, metric), cell in point.cells.items())
