"""``paceline export`` and ``paceline import``: results to and from other tools' formats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import UserError, UserErrors
from paceline.base.families.family import Scalar
from paceline.base.redaction import redact_arguments
from paceline.cli.options import (
    json_option,
    print_json,
    results_option,
    warn,
)
from paceline.cli.publishing.for_readers import FORMATS as READER_FORMATS
from paceline.cli.publishing.for_readers import publish, reader_options, refuse_idle
from paceline.records.imports import FORMATS as IMPORT_FORMATS
from paceline.records.imports import import_file
from paceline.records.store.folder import RunRecord, load
from paceline.records.store.lookup import find_run
from paceline.records.store.storage import check_writable
from paceline.report.exports.choice import Choice
from paceline.report.exports.formats import BINARY, render, write
from paceline.report.exports.formats import FORMATS as EXPORT_FORMATS
from paceline.workflows.choosing import metrics_today, parse_filters, split_names
from paceline.workflows.showing import Asked
from paceline.workflows.stores import default_results, stores, stores_of

ALL_FORMATS = {**READER_FORMATS, **EXPORT_FORMATS}


def _formats(formats: dict[str, str]) -> str:
    return "\b\n" + "\n".join(f"  {name:<17} {text}" for name, text in formats.items())


@click.command("export", epilog="Formats:\n\n" + _formats(ALL_FORMATS))
@click.argument("style", metavar="FORMAT", type=click.Choice(tuple(ALL_FORMATS)))
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=None, help="File [default: standard output]."
)
@click.option("--metrics", multiple=True, help="Only these metrics.")
@click.option("--techniques", multiple=True, help="Only these techniques.")
@reader_options
@click.option(
    "--force",
    is_flag=True,
    help="Replace the file when it exists; with --against, compare what is not comparable.",
)
@results_option
def export(
    style: str,
    runs: tuple[str, ...],
    output: Path | None,
    metrics: tuple[str, ...],
    techniques: tuple[str, ...],
    force: bool,
    results: Path | None,
    suites: tuple[str, ...],
    filters: tuple[str, ...],
    baseline: str | None,
    margin: float | None,
    against: str | None,
    chart: str | None,
    standalone: bool,
) -> None:
    """Write RUNs (default: the latest) for readers or in another tool's FORMAT; records are never changed.

    latex, figure, markdown and prometheus hold what `paceline compare` and the site show: the same intervals and
    verdicts. The other formats hold measurements.
    """
    refuse_idle(style, click.get_current_context().params)
    if style in READER_FORMATS:
        asked = Asked(
            runs=runs,
            suites=suites,
            metrics=metrics_today(split_names(metrics), say=warn),
            techniques=split_names(techniques),
            filters=parse_filters(filters),
            baseline=baseline,
            margin=margin,
        )
        publish(
            style,
            stores(results, published=None if runs or suites else False),
            asked,
            against=against,
            chart=chart,
            standalone=standalone,
            output=output,
            force=force,
        )
        return
    if output is None and style in BINARY:
        raise UserError(f"{style} is not text", where="--output", fix=f"--output results.{style}")
    records: dict[str, RunRecord] = {}
    for name in runs or ("latest",):
        record = find_run(stores_of(results, name), name)
        records[record.run_id] = record
    choice = Choice(metrics=metrics_today(split_names(metrics), say=warn), techniques=split_names(techniques))
    if style != "traces":
        _name_empty(list(records.values()), choice)
    data = render(style, list(records.values()), choice)
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write(output, data, replace=force)
        click.echo(f"{number_of(len(records), 'run')} in {output}", err=True)


def _name_empty(records: list[RunRecord], choice: Choice) -> None:
    """Name the runs that have nothing of a choice.

    Raises:
        UserError: None of them has.
    """
    choice.check(records)
    empty = [record.run_id for record in records if next(choice.of(record), None) is None]
    text = f"nothing fits --metrics and --techniques in {', '.join(empty)}"
    if empty and len(empty) == len(records):
        raise UserError(text, fix="leave one of them out")
    if empty:
        warn(text)


@click.command("import", epilog="Formats:\n\n" + _formats(dict(IMPORT_FORMATS)))
@click.argument("style", metavar="FORMAT", type=click.Choice(tuple(IMPORT_FORMATS)))
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--op", default=None, help="The operation, if the file does not state it.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=None,
    help="The number of ranks, if the file does not state it.",
)
@click.option("--again", is_flag=True, help="Import a file although the store has it.")
@results_option
@json_option
def import_(
    style: str,
    files: tuple[Path, ...],
    op: str | None,
    ranks: int | None,
    again: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """Read FILEs of another tool into the store, one run for each.

    The numbers are kept as written and marked as imported: evidence grade D, never verified, compared with other runs
    only under --force.
    """
    root = results or default_results()
    check_writable(root)
    known = [] if again else load([root]).records
    given: dict[str, Scalar] = {}
    if op is not None:
        given["op"] = op
    if ranks is not None:
        given["ranks"] = ranks
    argv = redact_arguments(sys.argv)
    rows: list[dict[str, Any]] = []
    errors: list[UserError] = []
    for path in files:
        try:
            record = import_file(root, path, style, argv=argv, given=given, known=known)
        except UserError as error:
            errors.append(error)
            continue
        known.append(record)
        failed = sum(m.status != "ok" for m in record.measurements)
        rows.append(
            {
                "run_id": record.run_id,
                "source": str(path),
                "measurements": len(record.measurements),
                "without_number": failed,
                "file": str(record.path),
                "skipped": (record.run.imported_from or {}).get("skipped", {}),
                "notes": (record.run.imported_from or {}).get("notes", []),
            }
        )
    _report(rows, as_json)
    if errors:
        raise errors[0] if len(errors) == 1 else UserErrors(errors)


def _report(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    for row in rows:
        missing = f", {row['without_number']} without a number" if row["without_number"] else ""
        click.echo(
            f"{row['run_id']}  {number_of(row['measurements'], 'measurement')}{missing}, imported from {row['source']}"
        )
        left_out = [f"{count} of {kind}" for kind, count in row["skipped"].items()]
        for text in ([f"lines left out: {', '.join(left_out)}"] if left_out else []) + row["notes"]:
            click.echo(f"  {text}")
