"""Levels of replication as a table: spread, cost, the suite's numbers and the best, one row a level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.base.units import format_duration
from paceline.calibration.trials import Figure
from paceline.report.tables.terminal import laid_out, wrapped

HEADERS = (
    "comparison",
    "level",
    "spread of the ratio",
    "of each side",
    "share",
    "cost",
    "suite",
    "best",
)
COUNTED = {"launch": "launches", "instance": "instances", "round": "rounds"}


def level_table(figures: Sequence[Figure], width: int) -> str:
    """Return the levels of all comparisons, and below them what the numbers of each give.

    Args:
        figures: From ``level_figures``.
        width: Columns.
    """
    rows = [row for figure in figures for row in _rows(figure)]
    text, _ = laid_out(HEADERS, rows, width=width)
    notes = [
        "spread: standard deviation that a level adds to the log-ratio, and to each side's log time, with the "
        "interval of a bootstrap over launches; share: of a launch's variance with the suite's numbers",
        *(_verdict(figure) for figure in figures),
    ]
    return "\n".join([text, *(wrapped(note, width, "  ") for note in notes)])


def _rows(figure: Figure) -> list[list[str]]:
    details = figure.details
    best: Mapping[str, Any] = details["best"] or {}
    rows = []
    for level, counted in COUNTED.items():
        found = details["levels"][level]
        sides = (max(own[level], 0.0) ** 0.5 for own in details["own"].values())
        rows.append(
            [
                figure.name if level == "launch" else "",
                level,
                f"{found['spread']:.1%} [{found['low']:.1%}, {found['high']:.1%}]",
                " ".join(f"{side:.1%}" for side in sides),
                f"{details['suites_own']['shares'][level]:.0%}",
                format_duration(details["costs_s"][level]),
                str(details["suites_own"][counted]),
                str(best.get(counted, "–")),
            ]
        )
    return rows


def _verdict(figure: Figure) -> str:
    own, best = figure.details["suites_own"], figure.details["best"]
    said = f"{figure.name}: ± {own['half_width']:.1%} with the suite's numbers in {format_duration(own['cost_s'])}"
    if best is None:
        return f"{said}; nothing fits into {format_duration(figure.details['within_s'])}"
    said += f", ± {best['half_width']:.1%} with the best in {format_duration(best['cost_s'])}"
    return f"{said} ({figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}] times as wide)"
