"""``paceline show --definitions``: raw logs of serving as other clients would print them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from paceline.base.errors import UserError
from paceline.base.units import format_duration
from paceline.cli.options import print_json
from paceline.families.serving.core.load.log.definitions import Printed, as_others_print, became
from paceline.families.serving.core.load.log.entries import read_log
from paceline.records.store.folder import RECORD_FOLDERS
from paceline.records.store.lookup import find_run
from paceline.report.tables.terminal import laid_out, terminal_width
from paceline.workflows.stores import stores

ENDING = ".jsonl.gz"


def show_definitions(name: str, results: Path | None, *, as_json: bool) -> None:
    """Print what other clients would say of a raw log, or of those of a run."""
    read = {title: _read(path) for title, path in _logs(name, results)}
    if as_json:
        print_json({title: [asdict(p) for p in printed] for title, (printed, _) in read.items()})
        return
    for title, (printed, calls) in read.items():
        click.echo(title)
        click.echo(_table(printed))
        click.echo(calls)
        click.echo()
    for one in next(iter(read.values()))[0]:
        click.echo(f"{one.client}: {one.note}")


def _logs(name: str, results: Path | None) -> Iterator[tuple[str, Path]]:
    if name.endswith(ENDING) and not Path(name).match(f"{RECORD_FOLDERS}/*"):  # else a record file
        yield name, Path(name)
        return
    record = find_run(stores(results), name)
    seen: set[str] = set()
    for m in record.measurements:
        file = (m.artifacts or {}).get("load")
        if file is not None and file not in seen:
            seen.add(file)
            yield f"{m.suite} {m.label} launch {m.launch}", record.path.parent / file
    if not seen:
        raise UserError(
            f"run {name} has no raw logs of serving",
            expected="a run of the serving family, or a file *.jsonl.gz",
        )


def _read(path: Path) -> tuple[list[Printed], str]:
    try:
        log = read_log(path)
        return as_others_print(log), became(log)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(str(error), where=str(path), expected="a raw log of the load generator") from error


def _table(printed: list[Printed]) -> str:
    headers = ["client", "TTFT p50", "p99", "ITL mean", "p99", "TPOT mean", "p99"]
    rows = [
        [
            p.client,
            *(
                "–" if value is None else format_duration(value)
                for value in (
                    *(p.ttft_p50_s, p.ttft_p99_s, p.itl_mean_s),
                    *(p.itl_p99_s, p.tpot_mean_s, p.tpot_p99_s),
                )
            ),
        ]
        for p in printed
    ]
    return laid_out(headers, rows, width=terminal_width())[0]
