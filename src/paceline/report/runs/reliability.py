"""How often a launch of a technique gives a number, and what happened when it gave none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.analysis.evidence import OFF_BOARD_REASONS
from paceline.records.format.record import Run
from paceline.records.store.folder import RunRecord
from paceline.records.store.launches import last_of_launches
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.runs.page import run_slug
from paceline.report.tables.results import format_counts
from paceline.report.words.estimates import ABSENT
from paceline.stats.estimates import wilson

NOT_TRIED = frozenset({"skipped", "unsupported"})
"""Statuses of what was never started: neither successes nor failures."""
MAX_REASONS = 200
"""Reasons that the page lists, the most frequent ones first."""

Series = tuple[str, str, str]
"""Suite, runner and hardware, or family, technique and runner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """How all launches of all techniques of some runs ended."""

    by_suite: Mapping[Series, Counter[str]]
    by_technique: Mapping[Series, Counter[str]]
    reasons: Mapping[tuple[str, str, str], Counter[str]] = field(default_factory=dict)
    """(status, reason, suite) → run ids, each as often as it has it."""


def endings(records: Iterable[RunRecord]) -> Endings:
    """Count the endings of launches; calibrations and corrections are left out, and the metrics of a launch are one."""
    suites: dict[Series, Counter[str]] = {}
    techniques: dict[Series, Counter[str]] = {}
    reasons: dict[tuple[str, str, str], Counter[str]] = {}
    for record in records:
        run = record.run
        if run.reason in OFF_BOARD_REASONS:
            continue
        runner, hardware = _place(run)
        for m in last_of_launches(record):
            suites.setdefault((m.suite, runner, hardware), Counter())[m.status] += 1
            techniques.setdefault((m.family, m.technique, runner), Counter())[m.status] += 1
            if m.status != "ok":
                key = (m.status, m.reason or ABSENT, m.suite)
                reasons.setdefault(key, Counter())[run.run_id] += 1
    return Endings(by_suite=suites, by_technique=techniques, reasons=reasons)


def _place(run: Run) -> tuple[str, str]:
    return str(run.runner.get("name") or ABSENT), run.host_class or ABSENT


def suite_grid(found: Endings) -> Grid:
    """Return the share of launches with a number for each suite, runner and hardware."""
    headers = ("suite", "runner", "hardware", "launches", "with a number", "share", "without", "not tried")
    return rows_grid("by suite", headers, [[*key, *_counts(c)] for key, c in sorted(found.by_suite.items())])


def technique_grid(found: Endings) -> Grid:
    """Return the same for techniques some of whose launches gave no number, the least reliable first."""
    some = [(key, c) for key, c in found.by_technique.items() if _tried(c) > c["ok"]]
    headers = ("family", "technique", "runner", "launches", "with a number", "share", "without", "not tried")
    rows = [
        [*key, *_counts(c)]
        for key, c in sorted(some, key=lambda item: (item[1]["ok"] / _tried(item[1]), item[0]))
    ]
    return rows_grid("by technique", headers, rows)


def _tried(counts: Counter[str]) -> int:
    return sum(n for status, n in counts.items() if status not in NOT_TRIED)


def _counts(counts: Counter[str]) -> list[Cell | str]:
    tried, ok = _tried(counts), counts["ok"]
    share = ABSENT
    if tried:
        low, high = wilson(ok, tried)
        share = f"{ok / tried:.1%} [{low:.1%}, {high:.1%}]"
    ordered = [item for item in sorted(counts.items()) if item[0] != "ok"]
    lost = format_counts(item for item in ordered if item[0] not in NOT_TRIED)
    rest = format_counts(item for item in ordered if item[0] in NOT_TRIED)
    return [str(tried), str(ok), share, Cell(text=lost, kind="text"), Cell(text=rest, kind="text")]


def reason_grid(found: Endings) -> Grid:
    """Return what launches without a number said, the most frequent first, with the newest run that has it."""
    ordered = sorted(found.reasons.items(), key=lambda item: (-item[1].total(), item[0]))
    rows: list[Sequence[Cell | str]] = []
    for (status, reason, suite), runs in ordered[:MAX_REASONS]:
        newest = max(runs)
        link = Cell(text=newest[:13], href=f"runs/{run_slug(newest)}.html", kind="text mono")
        rows.append([Cell(text=reason, kind="text prose"), status, suite, str(runs.total()), link])
    notes = (
        [f"{len(ordered) - MAX_REASONS} rarer ones stand on their runs' pages"]
        if len(ordered) > MAX_REASONS
        else []
    )
    return rows_grid("reasons", ("reason", "status", "suite", "launches", "newest run"), rows, notes)
