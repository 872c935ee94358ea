"""What pages that set one run against another show: what both measured, and what else differs between them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from paceline.analysis.evidence import OFF_BOARD_REASONS, image_class
from paceline.analysis.runs import compare_shared, incomparable
from paceline.records.format.record import Run
from paceline.records.store.folder import RunRecord
from paceline.report.boards.standing import Usable, usable_points
from paceline.report.html import Grid, plain_grid
from paceline.report.runs.page import flat, packages, run_slug
from paceline.report.tables.results import Table, run_comparison_table
from paceline.report.words.estimates import ABSENT

PARTS: tuple[tuple[str, str], ...] = (
    ("code", "code"),
    ("runner", "runner"),
    ("container", "container"),
    ("host", "host"),
    ("device", "device"),
    ("settings", "flags"),
    ("environment", "environment"),
    ("load when it began", "telemetry"),
)
"""Headings, and the parts of a run beneath them; what was measured with which files and packages has its own rows."""
SHARED = frozenset({"suite", "technique"})
NEWEST = 4
"""Runs of a suite in a place of which any two have a page: six pages, however long the history is."""
DIGEST = 12
"""Letters of a digest that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A run and an earlier one that it can be set against."""

    later: RunRecord
    earlier: RunRecord
    why: str

    @property
    def href(self) -> str:
        """Return the path of the pair's page."""
        return f"compare/{run_slug(self.later.run_id)}--{run_slug(self.earlier.run_id)}.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The newest runs of a suite in a place, of which any two can be chosen."""

    suite: str
    place: tuple[str, ...]
    """Host class, runner and image class; the last one only where there was an image."""
    runs: tuple[Run, ...]
    """Newest first."""
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """What a pair's page shows."""

    why: str
    reason: str | None
    """Why they are not compared."""
    results: Grid
    verdicts: list[tuple[str, int]]
    differences: Grid
    command: str


def pairs(records: Sequence[RunRecord]) -> Iterator[Pair]:
    """Yield for each run the latest one before it that measured a suite of its own alike, and the one it repeats.

    Alike means on the same host class, image class and runner. Their number grows with that of runs, not its square.
    """
    by_id = {record.run_id: record for record in records}
    latest: dict[tuple[str, ...], RunRecord] = {}
    for record in sorted(records, key=lambda r: r.run_id):
        if record.run.reason in OFF_BOARD_REASONS:
            continue
        keys = [(str(s["suite"]), *_place(record.run)) for s in record.run.suites]
        before = max((latest[key] for key in keys if key in latest), key=lambda r: r.run_id, default=None)
        repeated = by_id.get(record.run.linked_run or "")
        if before is not None:
            yield Pair(later=record, earlier=before, why="the run before")
        if repeated is not None and repeated is not before:
            yield Pair(later=record, earlier=repeated, why="the run that it repeats")
        latest.update(dict.fromkeys(keys, record))


def choices(records: Sequence[RunRecord]) -> list[Choice]:
    """Return every suite and place with two runs or more, and all pairs of the newest of them."""
    found: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in sorted(records, key=lambda r: r.run_id, reverse=True):
        if record.run.reason in OFF_BOARD_REASONS:
            continue
        for suite in dict.fromkeys(str(s["suite"]) for s in record.run.suites):
            found.setdefault((*_place(record.run), suite), []).append(record)
    made = []
    for (*place, suite), members in sorted(found.items()):
        newest = members[:NEWEST]
        if len(newest) < 2:
            continue
        made.append(
            Choice(
                suite=suite,
                place=tuple(part for part in place if part),
                runs=tuple(r.run for r in newest),
                pairs=tuple(
                    Pair(later=a, earlier=b, why="an earlier run") for a, b in combinations(newest, 2)
                ),
            )
        )
    return made


def all_pairs(linked: Sequence[Pair], offered: Sequence[Choice]) -> list[Pair]:
    """Return each pair that has a page once, the ones that runs' pages lead to first."""
    both = (*linked, *(pair for choice in offered for pair in choice.pairs))
    by_href: dict[str, Pair] = {}
    for pair in both:
        by_href.setdefault(pair.href, pair)
    return list(by_href.values())


def _place(run: Run) -> tuple[str, str, str]:
    return str(run.host_class), str(run.runner.get("name")), image_class(run) or ""


def differences(left: Run, right: Run) -> list[tuple[str, str, str, str]]:
    """Return what differs between two runs beside their figures: (part, name, left, right).

    Suites and techniques are compared that both have: what only one has measured is no difference of what both have.
    """
    ours, theirs = _facts(left), _facts(right)
    found = []
    for key in dict.fromkeys((*ours, *theirs)):
        if key[0] in SHARED and not (key in ours and key in theirs):
            continue
        if ours.get(key) != theirs.get(key):
            found.append((*key, ours.get(key, ABSENT), theirs.get(key, ABSENT)))
    return found


def difference_table(left: Run, right: Run) -> Table:
    """Lay out what differs between two runs."""
    headers = ("part", "name", left.run_id[:13], right.run_id[:13])
    return Table(title="what else differs", headers=headers, rows=tuple(differences(left, right)), notes=())


def side_by_side(pair: Pair, usable: Usable = usable_points) -> SideBySide:
    """Compare a pair of runs, where they can be compared; ``usable`` gives a record's points."""
    later, earlier = pair.later.run, pair.earlier.run
    reason = incomparable(later, earlier)
    points = [usable(record)[0] for record in (pair.later, pair.earlier)]
    found = [] if reason else compare_shared(*points)
    return SideBySide(
        why=pair.why,
        reason=reason,
        results=plain_grid(run_comparison_table(found, later.run_id[:13], earlier.run_id[:13])),
        verdicts=sorted(Counter(c.verdict.name for c in found).items()),
        differences=plain_grid(difference_table(later, earlier)),
        command=f"paceline compare {shlex.quote(later.run_id)} {shlex.quote(earlier.run_id)}",
    )


def _facts(run: Run) -> dict[tuple[str, str], str]:
    data = run.model_dump(mode="json")
    found = {("Paceline", "version"): run.tool_version}
    for heading, key in PARTS:
        given: Mapping[str, Any] = data[key] or {}
        found |= {(heading, name): text for item in given.items() for name, text in flat(*item)}
    found.pop(("code", "diff"), None)
    for suite in run.suites:
        found[("suite", suite["suite"])] = f"version {suite.get('version')}, {_digest(suite)}"
    for name, facts in run.techniques.items():
        found[("technique", name)] = _digest(facts)
    found[("package", "Python")] = str((run.packages or {}).get("python") or ABSENT)
    for line in packages(run):
        name, _, version = line.partition("==")
        found[("package", name)] = version or line
    return found


def _digest(facts: Mapping[str, Any]) -> str:
    return str(facts.get("sha256") or ABSENT)[:DIGEST]
