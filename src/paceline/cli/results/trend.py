"""``paceline trend``: series over many runs, and since when they are others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.cli.options import json_option, print_json, results_option, warn, wide_option
from paceline.records.origin.ancestry import ancestry_of
from paceline.workflows.choosing import metrics_today
from paceline.workflows.stores import load_kept


@click.command("trend")
@click.argument("suite", required=False)
@click.option("--technique", default=None, help="Only the series of this label.")
@click.option("--metric", default=None, help="Only the series of this metric.")
@wide_option
@results_option
@json_option
def trend(
    suite: str | None,
    technique: str | None,
    metric: str | None,
    wide: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """List the series that changed over the nights, and since when, of all suites or of one SUITE.

    A change is a step or a drift. A night is a run made to measure; runs that check others (pr, confirm, reproduce) do
    not count, nor do runs of a commit that is an ancestor of one that was measured before. An alert is a recent change
    beyond the metric's margin that stays after adjusting for all series (q ≤ 0.05).
    """
    from paceline.report.boards.standing import select  # noqa: PLC0415
    from paceline.report.runs import trends  # noqa: PLC0415 - jinja and scipy only when needed

    metric = metric and metrics_today([metric], say=warn)[0]
    records = load_kept(results, say=warn).records
    boards, is_ancestor = select(records).boards, ancestry_of(r.run for r in records)
    if suite is not None and suite not in {b.suite for b in boards}:
        raise UserError(
            f"the store has no results of '{suite}'",
            expected=expected_one_of(suite, {b.suite for b in boards}),
        )
    chosen = [b for b in boards if suite in (None, b.suite)]
    _check_names(chosen, technique, metric)
    found = trends.narrowed(
        [t for b in chosen for t in trends.trends_of(b, is_ancestor)], technique=technique, metric=metric
    )
    alerts = trends.recent(found)
    warnings = []
    if not found:
        what = " of ".join(filter(None, (metric, technique, suite)))
        warnings.append(f"no series{' of ' if what else ''}{what} has two nights or more")
        warn(warnings[0])
    if as_json:
        print_json(
            {
                "series": [_plain(t, h) for t in found for h in t.series],
                "alerts": len(alerts),
                "left_out": trends.left_out(found),
                "drivers": trends.driver_events(found),
                "warnings": warnings,
            }
        )
        return
    for table in trends.tables(found, alerts):
        click.echo(table.render(wide=wide))
    for event in trends.driver_events(found):
        click.echo(event)
    for line in trends.left_out(found):
        click.echo(f"left out: {line}")
    changes = sum(len(h.changes) for t in found for h in t.series)
    count = sum(len(t.series) for t in found)
    click.echo(
        f"{count} series of two nights or more: {number_of(changes, 'change')}, {number_of(len(alerts), 'alert')}"
    )
    if (blind := trends.blindness(found)) is not None:
        click.echo(blind)


def _check_names(boards: Sequence[Any], technique: str | None, metric: str | None) -> None:
    """Refuse a technique and a metric that none of the boards has."""
    cells = [key for board in boards for point in board.points for key in point.cells]
    for option, name, known in (
        ("--technique", technique, {label for label, _ in cells}),
        ("--metric", metric, {name for _, name in cells}),
    ):
        if name is not None and name not in known:
            raise UserError(
                f"the store has no results of '{name}'", where=option, expected=expected_one_of(name, known)
            )


def _plain(found: Any, history: Any) -> dict[str, Any]:
    board = found.board
    changes = [
        {
            **asdict(c),
            "since": history.nights[c.at].started,
            "run_id": history.nights[c.at].run_id,
            "size": history.size(c),
            "matters": history.matters(c),
        }
        for c in history.changes
    ]
    place = {
        "suite": board.suite,
        "runner": board.runner,
        "host_class": board.host_class,
        "point": found.name,
    }
    return place | asdict(history) | {"changes": changes, "blind_nights": history.blind_nights}
