"""``paceline store``: list, verify, merge, compact, retract."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from paceline import custody
from paceline import store as records
from paceline.cli.options import default_results, json_option, print_json, results_option
from paceline.errors import EXIT_INCORRECT, EXIT_OK, EXIT_USAGE, UserError
from paceline.record import Event, utc


@click.group("store")
def store() -> None:
    """List, verify, merge, compact or retract records."""


def _opened(results: Path | None) -> Path:
    """Return a store to read; the default one may not exist yet, one that was named must."""
    if results is not None and not results.is_dir():
        raise UserError("no such store", where=str(results), expected="a folder of records")
    return results or default_results()


@store.command("ls")
@click.option("--partial", is_flag=True, help="Also interrupted runs.")
@results_option
@json_option
def list_runs(partial: bool, results: Path | None, as_json: bool) -> None:
    """List runs, oldest first."""
    root = _opened(results)
    loaded = records.load([root] if root.is_dir() else [], partial=partial)
    rows: list[dict[str, Any]] = []
    for record in loaded.records:
        if record.run.reason == "correction":
            continue
        statuses = Counter(m.status for m in record.measurements)
        rows.append(
            {
                "run_id": record.run_id,
                "started": record.run.started,
                "runner": record.run.runner.get("name"),
                "suites": [s["suite"] for s in record.run.suites],
                "measurements": dict(statuses),
                "sealed": record.sealed,
                "file": str(record.path),
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        suites = ", ".join(row["suites"][:3]) + (" …" if len(row["suites"]) > 3 else "")
        counts = ", ".join(f"{n} {s}" for s, n in sorted(row["measurements"].items()))
        state = "" if row["sealed"] else "  (interrupted: paceline run --resume)"
        click.echo(f"{row['run_id']}  {row['started']}  {row['runner']}  {suites}  {counts}{state}")
    for problem in loaded.problems:
        click.echo(f"unreadable: {problem.path}: {problem.what}", err=True)


@store.command("verify")
@results_option
@json_option
def verify(results: Path | None, as_json: bool) -> None:
    """Check digests, seals and statistics of every record; find changed, missing and unknown files."""
    root = _opened(results)
    problems = custody.verify(root)
    total = len(records.record_paths(root))
    if as_json:
        print_json({"files": total, "problems": [{"path": p.path, "what": p.what} for p in problems]})
    else:
        for problem in problems:
            click.echo(f"{problem.path}: {problem.what}", err=True)
        click.echo(f"{total} records, {len(problems)} problems")
    sys.exit(EXIT_INCORRECT if problems else EXIT_OK)


@store.command("merge")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@results_option
def merge(sources: tuple[Path, ...], results: Path | None) -> None:
    """Add the sealed records of other stores (a set union); what does not hold is refused with the reason."""
    root = results or default_results()
    records.check_writable(root)
    added, problems = custody.merge(root, sources)
    for problem in problems:
        click.echo(f"refused: {problem.path}: {problem.what}", err=True)
    click.echo(f"{added} records added, {len(problems)} refused")
    sys.exit(EXIT_USAGE if problems else EXIT_OK)


@store.command("compact")
@click.option("--output", type=click.Path(path_type=Path), default=None, help="Parquet file.")
@results_option
def compact(output: Path | None, results: Path | None) -> None:
    """Write all measurements to one Parquet file: a cache that can be deleted at any time."""
    root = _opened(results)
    target = output or root / "cache" / "measurements.parquet"
    click.echo(f"{custody.compact(root, target)} rows in {target}")


@store.command("retract")
@click.argument("run")
@click.option("--reason", required=True, help="Why its numbers must not be shown.")
@results_option
def retract(run: str, reason: str, results: Path | None) -> None:
    """Withdraw a RUN: the record stays, no report shows it."""
    root = _opened(results)
    record = records.load([root]).find(run)
    path = custody.retract(root, record.run_id, reason)
    click.echo(f"retracted {record.run_id}; correction {path}")


@store.command("baseline")
@click.argument("run")
@results_option
def baseline(run: str, results: Path | None) -> None:
    """Make a RUN the one that `gate` compares with, for its suites, runner and host class."""
    root = _opened(results)
    record = records.load([root]).find(run)
    data = {
        "run_id": record.run_id,
        "suites": [s["suite"] for s in record.run.suites],
        "host_class": record.run.host_class,
        "runner": record.run.runner.get("name"),
    }
    path = custody.append_event(root, Event(kind="baseline_set", at=utc(), run_id=record.run_id, data=data))
    click.echo(f"baseline set to {record.run_id}; correction {path}")
