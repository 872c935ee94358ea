"""Results in other tools' formats: which ones there are, and the long tables (CSV, Parquet) of everything.

Exports read records and change nothing in them. CSV has a row for each raw sample, Parquet one for each measurement
with its samples as a list; pytest-benchmark and nccl-tests have modules of their own.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.analysis.points import grade_of
from paceline.base.errors import UserError
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord
from paceline.records.store.rows import measurement_rows
from paceline.records.store.storage import storage_errors
from paceline.report.exports.choice import Choice

FORMATS: Mapping[str, str] = {
    "pytest-benchmark": "JSON for `pytest-benchmark compare`: every metric in seconds, with raw samples",
    "csv": "long table: a row for each raw sample",
    "parquet": "long table: a row for each measurement, samples as a list",
    "traces": "Parquet of what models wrote: a row for each trace that a run of the reasoning family keeps",
    "nccl-tests": "columns of nccl-tests: collectives with size, time, algbw and busbw",
}
BINARY = frozenset({"parquet", "traces"})
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets compute."""
CSV_COLUMNS = (
    "run_id",
    "started",
    "grade",
    "runner",
    "host_class",
    "commit",
    "dirty",
    "suite",
    "suite_version",
    "block",
    "technique",
    "label",
    "role",
    "metric",
    "unit",
    "better",
    "contract_id",
    "launch",
    "attempt",
    "sample",
    "value",
    "launch_value",
    "status",
    "reason",
)
"""Columns before the parameters, which follow as ``param.<name>``."""


def render(style: str, records: Sequence[RunRecord], choice: Choice) -> bytes:
    """Return an export as bytes.

    Args:
        style: One of ``FORMATS``.
        records: The runs.
        choice: Which of their measurements.

    Raises:
        UserError: The runs hold nothing that the format can express.
    """
    choice.check(records)
    if style == "csv":
        return csv_table(records, choice).encode()
    if style == "parquet":
        return parquet_table(records, choice)
    if style == "pytest-benchmark":
        from paceline.report.exports.pytest_benchmark import document  # noqa: PLC0415 - one format at a time

        return (json.dumps(document(records, choice), indent=4, allow_nan=False) + "\n").encode()
    if style == "traces":
        from paceline.report.exports.traces import parquet  # noqa: PLC0415 - one format at a time

        if choice.metrics or choice.techniques:
            raise UserError(
                "traces are of a launch, and not of a metric or technique",
                where="--metrics, --techniques",
                fix="leave both out, and choose rows of the table",
            )
        return parquet(records)
    assert style == "nccl-tests", style
    from paceline.report.exports.nccl_tests import table  # noqa: PLC0415 - one format at a time

    return table(records, choice).encode()


def write(target: Path, data: bytes, *, replace: bool) -> None:
    """Write an export whole or not at all.

    Raises:
        UserError: The file exists and may not be replaced, or the folder cannot be written.
    """
    if target.exists() and not replace:
        raise UserError("the file exists", where=str(target), fix="--force replaces it")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def grades(record: RunRecord) -> dict[tuple[str, str, str], str]:
    """Return the evidence grade of every block, label and metric of a run."""
    launches: dict[tuple[str, str, str], set[int]] = {}
    flags: dict[tuple[str, str, str], set[str]] = {}
    for m in record.measurements:
        if m.status == "ok":
            key = (m.block, m.label, m.metric.name)
            launches.setdefault(key, set()).add(m.launch)
            flags.setdefault(key, set()).update(m.flags)
    return {key: grade_of(record.run, len(found), flags=flags[key]) for key, found in launches.items()}


def csv_table(records: Sequence[RunRecord], choice: Choice) -> str:
    """Return the long table as RFC 4180 text; numbers are written so that reading them back gives the same double."""
    names = sorted({name for r in records for m in choice.of(r) for name in m.params})
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow([*CSV_COLUMNS, *(csv_cell(f"param.{n}") for n in names)])
    for record in records:
        grade = grades(record)
        for m in choice.of(record):
            params = [csv_cell(m.params.get(n)) for n in names]
            for index, sample in enumerate(m.samples) if m.samples else [(None, None)]:
                row = _csv_row(record, m, grade.get((m.block, m.label, m.metric.name)), index, sample)
                table.writerow([*(csv_cell(row[c]) for c in CSV_COLUMNS), *params])
    return text.getvalue()


def _csv_row(
    record: RunRecord, m: Measurement, grade: str | None, index: int | None, sample: float | None
) -> dict[str, Any]:
    run = record.run
    return {
        "run_id": run.run_id,
        "started": run.started,
        "grade": grade,
        "runner": run.runner.get("name"),
        "host_class": run.host_class,
        "commit": run.code.get("commit"),
        "dirty": run.code.get("dirty"),
        "suite": m.suite,
        "suite_version": m.suite_version,
        "block": m.block,
        "technique": m.technique,
        "label": m.label,
        "role": m.role,
        "metric": m.metric.name,
        "unit": m.metric.unit,
        "better": m.metric.better,
        "contract_id": m.metric.contract_id,
        "launch": m.launch,
        "attempt": m.attempt,
        "sample": index,
        "value": sample,
        "launch_value": m.value,
        "status": m.status,
        "reason": m.reason,
    }


def csv_cell(value: Any) -> Any:
    """Write floats with all of their digits, absent facts as empty cells, flags as JSON writes them.

    A text that a spreadsheet would take for a formula gets an apostrophe in front: records come from other people, too.
    """
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else value


def parquet_table(records: Sequence[RunRecord], choice: Choice) -> bytes:
    """Return one Parquet row for each measurement; the schema does not depend on what the runs hold."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only needed here
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows = []
    for record in records:
        grade = grades(record)
        chosen = {m.record_id: m for m in choice.of(record)}
        for row in measurement_rows(record):
            m = chosen.get(row["record_id"])
            if m is not None:
                more = _more(record, m, grade.get((m.block, m.label, m.metric.name)))
                rows.append({name: _plain(name, value) for name, value in {**row, **more}.items()})
    integers = ("launch", "attempt", "suite_version", "n")
    kinds: dict[str, Any] = {name: pa.string() for name in parquet_columns()}
    kinds |= dict.fromkeys(integers, pa.int64()) | dict.fromkeys(("value", "predicted"), pa.float64())
    kinds |= {"samples": pa.list_(pa.float64()), "flags": pa.list_(pa.string()), "dirty": pa.bool_()}
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _plain(name: str, value: object) -> object:
    """Return a value that its column can hold: provenance may be of any kind in records of others."""
    if name == "dirty":
        return value if isinstance(value, bool) else None
    is_odd = name == "commit" and value is not None and not isinstance(value, str)
    return json.dumps(value) if is_odd else value


def parquet_columns() -> tuple[str, ...]:
    """Name the columns of the Parquet table, in order."""
    return (
        *("record_id", "run_id", "started", "grade", "host_class", "runner", "commit", "dirty"),
        *("suite", "suite_version", "family", "case_id", "series_key", "block", "label", "technique", "role"),
        *("launch", "attempt", "metric", "unit", "better", "statistic", "contract_id", "value", "n"),
        *("status", "reason", "flags", "predicted", "params", "options", "samples", "imported_from"),
    )


def _more(record: RunRecord, m: Measurement, grade: str | None) -> dict[str, Any]:
    return {
        "grade": grade,
        "commit": record.run.code.get("commit"),
        "dirty": record.run.code.get("dirty"),
        "suite_version": m.suite_version,
        "attempt": m.attempt,
        "better": m.metric.better,
        "statistic": m.metric.statistic,
        "contract_id": m.metric.contract_id,
        "flags": list(m.flags),
        "predicted": m.predicted,
        "options": json.dumps(m.options, sort_keys=True),
        "imported_from": json.dumps(record.run.imported_from) if record.run.imported_from else None,
    }
