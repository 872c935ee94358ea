"""``paceline load``: one server under load, or two under the same load in turn."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.counting import number_of
from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK, UserError
from paceline.base.units import format_duration
from paceline.cli.measuring.load_options import (
    asked_of,
    duration_of,
    load_options,
    server_options,
    traffic_and_sweep,
)
from paceline.cli.options import (
    json_option,
    machine_options,
    margin_option,
    print_json,
    results_option,
    warn,
    wide_option,
)
from paceline.drivers.execute import Outcome
from paceline.records.store.folder import RunRecord, read_record
from paceline.records.store.storage import resume_command
from paceline.report.tables.load_test import load_tables
from paceline.report.words.stops import stop_lines
from paceline.workflows.load import LAUNCHES, MARGIN, Side, find_sides, suite_of
from paceline.workflows.running import exit_code, perform, prepare
from paceline.workflows.stores import default_results

MOST_SERVERS = 4
NEEDED = ("ttft_p50", "ttft_p90", "tpot_p50", "e2e_p50")
"""Metrics without which a load test has not told what it is asked for: more than a tenth of its calls failed."""


@click.command("load")
@click.argument("urls", nargs=-1, required=True, metavar="URL [URL]...")
@load_options
@server_options
@margin_option(f"Margin of equivalence of two servers' times. [default: {MARGIN}]")
@click.option(
    "--save-suite",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Keep what is run as a suite file.",
)
@click.option(
    "--runner", default="local-cpu", show_default=True, help="Runner profile of the load generator."
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Find out how the servers want to be asked, print the suite, and send no load.",
)
@results_option
@machine_options
@wide_option
@json_option
def load(urls: tuple[str, ...], **options: Any) -> None:
    """Put a server of the OpenAI interface under load; two get the same calls in turn until they are told apart.

    URL is its address, with or without /v1: http://127.0.0.1:8000. `mock:first=50ms,gap=10ms` is a server of known
    truth that starts by itself, to try this command on.
    """
    if len(urls) > MOST_SERVERS:
        raise UserError(number_of(len(urls), "server"), where="URL", expected=f"1 to {MOST_SERVERS}")
    _check_launches(options["launches"], len(urls))
    budget = duration_of("--budget", options["budget"])
    traffic, sweep = traffic_and_sweep(options)
    asked = [asked_of(n, url, len(urls), options) for n, url in enumerate(urls)]
    sides = find_sides(asked, traffic, say=warn)
    _say_sides(sides)
    text = suite_of(
        sides,
        traffic,
        sweep=sweep,
        margin=options["margin"] if options["margin"] is not None else MARGIN,
        launches=options["launches"] or 1,
        budget=budget,
    )
    if options["save_suite"] is not None:
        options["save_suite"].write_text(text, encoding="utf-8")
    if options["dry_run"]:
        click.echo(text, nl=False)
        return
    outcome = _run(text, len(sides), options)
    sys.exit(_report(outcome, options))


def _check_launches(launches: int | None, count: int) -> None:
    """Check, before a server is started, that there are enough launches to tell two apart.

    Raises:
        UserError: There are not.
    """
    if count > 1 and launches is not None and launches < LAUNCHES:
        raise UserError(
            f"{number_of(launches, 'launch tells', 'launches tell')} no two servers apart",
            where=f"--launches={launches}",
            expected=f"{LAUNCHES} or more before the first look",
        )


def _say_sides(sides: Sequence[Side]) -> None:
    """Say how each server will be asked, on stderr."""
    for side in sides:
        server = side.server
        if server is None:
            click.echo(f"{side.label}: {side.options['url']}", err=True)
            continue
        says = ", ".join(f"{k} {v}" for k, v in server.says.items())
        left = f"; without {', '.join(server.leave_out)}" if server.leave_out else ""
        renamed = "".join(f"; {old} as {new}" for old, new in server.rename.items())
        answers = ", of answers by the limit at which they end" if server.counting.length_counts else ""
        click.echo(
            f"{side.label}: {server.model} at {server.url}, {server.api}{left}{renamed}; tokens of prompts by "
            f"{side.counted_by}{answers}" + (f"; {says}" if says else ""),
            err=True,
        )


def _run(text: str, count: int, options: dict[str, Any]) -> Outcome:
    from paceline.spec.suites.launches import parse_launches  # noqa: PLC0415 - pydantic only when it is called

    chosen = parse_launches(options["launches"]) if count > 1 and options["launches"] is not None else None
    with tempfile.TemporaryDirectory(prefix="paceline-load-suite-") as folder:
        path = Path(folder) / "load.yaml"
        path.write_text(text, encoding="utf-8")
        prepared = prepare(
            [str(path)],
            tier="standard",
            runner=options["runner"],
            seed=options["seed"],
            launches=chosen,
            say=warn,
        )
        return perform(
            prepared,
            options["results"] or default_results(),
            say=warn,
            quiet=options["as_json"],
            wait_s=options["wait_s"],
            allow_concurrent=options["allow_concurrent"],
        )


def _report(outcome: Outcome, options: dict[str, Any]) -> int:
    """Print what was found and return the exit code."""
    if outcome.path is None:
        click.echo(
            f"interrupted; {number_of(outcome.num_missing, 'result is', 'results are')} missing, the rest is kept"
        )
        store = options["results"] or default_results()
        click.echo(f"go on with: {resume_command(outcome.run_id, store)}")
        return exit_code(outcome)
    record = read_record(outcome.path)
    points = points_of(record)
    lost = [] if exit_code(outcome) else _lost(record)
    if options["as_json"]:
        print_json(_facts(outcome, record))
    else:
        for table in load_tables(points, compare_points(points)):
            click.echo(table.render(wide=options["wide"]))
        for line in stop_lines(record):
            click.echo(line)
        for line in lost:
            click.echo(line, err=True)
        click.echo(f"{format_duration(outcome.measuring_s)}; record {outcome.path}")
    return exit_code(outcome) or (EXIT_INFRASTRUCTURE if lost else EXIT_OK)


def _lost(record: RunRecord) -> list[str]:
    """Say which servers have no number at all, and which first figures have none since too few calls were completed."""
    found: dict[str, None] = {}
    for label in dict.fromkeys(m.label for m in record.measurements):
        own = [m for m in record.measurements if m.label == label]
        if all(m.value is None for m in own):
            found |= dict.fromkeys(f"{label}: no number: {reason}" for m in own if (reason := m.reason))
    for m in record.measurements:
        for name, reason in (m.absent or {}).items():
            if name in NEEDED and reason.startswith("too many"):
                found[f"{m.label}: no {name} in launch {m.launch}: {reason}"] = None
    return list(found)


def _facts(outcome: Outcome, record: RunRecord) -> dict[str, Any]:
    points = points_of(record)
    return {
        "run_id": outcome.run_id,
        "record": str(outcome.path),
        "statuses": dict(outcome.statuses),
        "points": [
            {
                "params": dict(p.params),
                "figures": {
                    label: {
                        metric: asdict(p.estimate(label, metric))
                        for name, metric in sorted(p.cells)
                        if name == label
                    }
                    for label in p.labels
                },
            }
            for p in points
        ],
        "comparisons": [
            {
                "label": c.label,
                "metric": c.metric,
                "effect": asdict(c.effect),
                "verdict": c.verdict.name,
                "block": c.point.block,
            }
            for c in compare_points(points)
        ],
    }
