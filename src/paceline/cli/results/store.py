"""``paceline store``: list, verify, repair, merge, compress, compact, and corrections of records."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_INCORRECT, EXIT_OK, EXIT_USAGE, UserError, expected_one_of
from paceline.cli.options import json_option, print_json, results_option, warn
from paceline.records.format.record import Event
from paceline.records.format.record_file import run_id_of
from paceline.records.identity import utc
from paceline.records.store import folder as records
from paceline.records.store import integrity, merging
from paceline.records.store.launches import status_counts
from paceline.records.store.lookup import find_run
from paceline.records.store.repair import repair as repair_manifest
from paceline.records.store.storage import check_writable, resume_command
from paceline.workflows.choosing import metrics_today
from paceline.workflows.stores import default_results


@click.group("store")
def store() -> None:
    """List, verify, repair, merge, compress, compact or correct records."""


def _opened(results: Path | None) -> Path:
    """Return a store to read; the default one may not exist yet, one that was named must."""
    if results is not None and not results.is_dir():
        raise UserError("no such store", where=str(results), expected="a folder of records")
    return results or default_results()


@store.command("ls")
@click.option("--partial", is_flag=True, help="Also list interrupted runs.")
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
        rows.append(
            {
                "run_id": record.run_id,
                "started": record.run.started,
                "runner": record.run.runner.get("name"),
                "suites": [s["suite"] for s in record.run.suites],
                "statuses": dict(status_counts(record)),
                "measurements": dict(Counter(m.status for m in record.measurements)),
                "sealed": record.sealed,
                "file": str(record.path),
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        suites = ", ".join(row["suites"][:3]) + (" …" if len(row["suites"]) > 3 else "")
        counts = ", ".join(f"{n} {s}" for s, n in sorted(row["statuses"].items()))
        state = "" if row["sealed"] else f"  (interrupted: {resume_command(row['run_id'], root)})"
        click.echo(f"{row['run_id']}  {row['started']}  {row['runner']}  {suites}  {counts}{state}")
    for problem in loaded.problems:
        click.echo(f"unreadable: {problem.path}: {problem.what}", err=True)


@store.command("verify")
@results_option
@json_option
def verify(results: Path | None, as_json: bool) -> None:
    """Check digests, seals and statistics of every record; find changed, missing and unknown files."""
    root = _opened(results)
    problems = integrity.verify(root)
    total = len({run_id_of(path) for path in records.record_paths(root)})
    if as_json:
        print_json({"files": total, "problems": [{"path": p.path, "what": p.what} for p in problems]})
    else:
        for problem in problems:
            click.echo(f"{problem.path}: {problem.what}", err=True)
        click.echo(f"{number_of(total, 'record')}, {number_of(len(problems), 'problem')}")
    sys.exit(EXIT_INCORRECT if problems else EXIT_OK)


@store.command("repair")
@results_option
@json_option
def repair(results: Path | None, as_json: bool) -> None:
    """Rebuild the manifest from the sealed records, and say what was wrong and what still is; no record is changed.

    Lines that cannot be read or are repeated go, sound records without a line get one. What is listed and missing stays
    listed. The exit code is that of `store verify` afterwards.
    """
    done = repair_manifest(_opened(results))
    if as_json:
        print_json(asdict(done))
    else:
        for name in done.added:
            click.echo(f"listed: {name}")
        for problem in done.dropped:
            click.echo(f"dropped: {problem.path}: {problem.what}")
        for problem in done.left:
            click.echo(f"not mended: {problem.path}: {problem.what}", err=True)
        click.echo(
            f"{number_of(len(done.added), 'record')} listed, {number_of(len(done.dropped), 'line')} dropped, "
            f"{done.repeated} repeated ones, "
            f"{number_of(len(done.left), 'problem')} left"
        )
    sys.exit(EXIT_INCORRECT if done.left else EXIT_OK)


@store.command("merge")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--corrections", is_flag=True, help="Also add corrections to this store's own runs and to its gate."
)
@results_option
def merge(sources: tuple[Path, ...], corrections: bool, results: Path | None) -> None:
    """Add the sealed records of other stores (a set union); an invalid record is refused with the reason.

    Several merges into one store may run at once. A correction is taken where the run that it is about is in the store.
    """
    root = results or default_results()
    check_writable(root)
    added, problems = merging.merge(root, sources, corrections=corrections)
    for problem in problems:
        click.echo(f"refused: {problem.path}: {problem.what}", err=True)
    click.echo(f"{number_of(added, 'record')} added, {len(problems)} refused")
    sys.exit(EXIT_USAGE if problems else EXIT_OK)


@store.command("compress")
@results_option
@json_option
def compress(results: Path | None, as_json: bool) -> None:
    """Compress sealed records that earlier versions stored plain; lines, digests and the manifest stay the same.

    A plain file is deleted once its compressed form is on the disk with the same lines. If interrupted, run it again.
    """
    done = integrity.compress(_opened(results))
    if as_json:
        print_json(asdict(done))
    else:
        for problem in done.problems:
            click.echo(f"left as it is: {problem.path}: {problem.what}", err=True)
        sizes = f": {done.before_bytes} -> {done.after_bytes} bytes" if done.files else ""
        click.echo(
            f"{number_of(done.files, 'record')} compressed{sizes}, {len(done.problems)} left as they are"
        )
    sys.exit(EXIT_INCORRECT if done.problems else EXIT_OK)


@store.command("compact")
@click.option("--output", type=click.Path(path_type=Path), default=None, help="Parquet file.")
@results_option
def compact(output: Path | None, results: Path | None) -> None:
    """Write all measurements to one Parquet file: a cache that can be deleted at any time."""
    root = _opened(results)
    target = output or root / "cache" / "measurements.parquet"
    click.echo(f"{number_of(integrity.compact(root, target), 'row')} in {target}")


@store.command("retract")
@click.argument("run")
@click.option("--reason", required=True, help="Why its numbers must not be shown.")
@results_option
def retract(run: str, reason: str, results: Path | None) -> None:
    """Withdraw a RUN: the record stays, but no report shows it."""
    root = _opened(results)
    record = find_run([root], run)
    path = integrity.retract(root, record.run_id, reason)
    click.echo(f"retracted {record.run_id}; correction {path}")


@store.command("baseline")
@click.argument("run")
@results_option
def baseline(run: str, results: Path | None) -> None:
    """Make RUN the reference of `gate` for its suites, runner and host class."""
    root = _opened(results)
    record = find_run([root], run)
    data = {
        "run_id": record.run_id,
        "suites": [s["suite"] for s in record.run.suites],
        "host_class": record.run.host_class,
        "runner": record.run.runner.get("name"),
    }
    path = integrity.append_event(root, Event(kind="baseline_set", at=utc(), run_id=record.run_id, data=data))
    click.echo(f"baseline set to {record.run_id}; correction {path}")


@store.command("annotate")
@click.argument("run")
@click.option("--text", required=True, help="What readers of the run should know.")
@results_option
def annotate(run: str, text: str, results: Path | None) -> None:
    """Add a note to a RUN, shown on its page: a new driver, another room, a kernel update."""
    root = _opened(results)
    record = find_run([root], run)
    event = Event(
        kind="annotate", at=utc(), run_id=record.run_id, data={"run_id": record.run_id, "text": text}
    )
    click.echo(f"annotated {record.run_id}; correction {integrity.append_event(root, event)}")


@store.command("waive")
@click.argument("suite")
@click.option("--technique", required=True, help="Label of the technique whose regression is accepted.")
@click.option("--metric", default=None, help="Only this metric [default: all of them].")
@click.option("--claim", default=None, help="Only the refutation of this claim.")
@click.option("--reason", required=True, help="Why it is accepted.")
@click.option(
    "--until", required=True, type=click.DateTime(formats=["%Y-%m-%d"]), help="Last day of the waiver."
)
@results_option
def waive(
    suite: str,
    technique: str,
    metric: str | None,
    claim: str | None,
    reason: str,
    until: datetime,
    results: Path | None,
) -> None:
    """Let `gate` pass a known regression of SUITE until a given day; wrong results are never waived."""
    root = _opened(results)
    metric = metric and metrics_today([metric], say=warn)[0]
    if metric is not None and claim is not None:
        raise UserError("a waiver is about a metric or a claim", expected="--metric or --claim")
    found = records.load([root]).records
    labels = {m.label for r in found for m in r.measurements if m.suite == suite}
    if technique not in labels:
        raise UserError(
            f"the store has no results of '{technique}' in {suite}",
            expected=expected_one_of(technique, sorted(labels)) if labels else "a suite that was measured",
        )
    _check_waived(found, suite, metric, claim)
    data = {
        "suite": suite,
        "technique": technique,
        "metric": metric,
        "claim": claim,
        "reason": reason,
        "until": until.date().isoformat(),
    }
    path = integrity.append_event(root, Event(kind="waiver", at=utc(), data=data))
    click.echo(f"waived until {data['until']}: {suite} {technique}; correction {path}")


def _check_waived(found: list[records.RunRecord], suite: str, metric: str | None, claim: str | None) -> None:
    """Refuse a metric and a claim that the suite has in none of its runs."""
    metrics = {m.metric.name for r in found for m in r.measurements if m.suite == suite}
    facts = [s for r in found for s in r.run.suites if s["suite"] == suite]
    claims = {str(c["id"]) for s in facts for c in s.get("claims", ())}
    for option, name, known in (("metric", metric, metrics), ("claim", claim, claims)):
        if name is not None and name not in known:
            raise UserError(
                f"{suite} has no {option} '{name}'",
                where=f"--{option}",
                expected=expected_one_of(name, known),
            )
