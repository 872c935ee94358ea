"""Custody of a store: checking what it holds, taking in other stores, correcting and compacting.

Sealed files are never edited: a correction is an event in a file of its own, and merging only adds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from paceline import __version__
from paceline.base.errors import UserError
from paceline.base.family import load_family
from paceline.records.lookup import retractions
from paceline.records.record import Event, Measurement, Run, new_run_id, record_id, series_key, utc
from paceline.records.storage import storage_errors
from paceline.records.store import (
    MAX_LINE_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORD_LINES,
    MEASUREMENT_COLUMNS,
    Problem,
    RecordWriter,
    RunRecord,
    add_to_manifest,
    measurement_rows,
    read_manifest,
    read_record,
    record_paths,
)


def verify(root: Path) -> list[Problem]:
    """Check every sealed file against the manifest and its own seal; find changed, missing and unknown files."""
    problems: list[Problem] = []
    entries = read_manifest(root)
    for name, entry in entries.items():
        path = root / name
        if not path.is_file():
            problems.append(Problem(path=name, what="missing: the manifest lists it, the folder lacks it"))
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != entry["sha256"]:
            problems.append(Problem(path=name, what="changed since it was sealed (digest differs)"))
    for path in record_paths(root):
        name = str(path.relative_to(root))
        if name not in entries:
            problems.append(Problem(path=name, what="not in the manifest"))
        try:
            record = read_record(path)
        except UserError as error:
            problems.append(Problem(path=name, what=error.what))
            continue
        if not record.sealed:
            problems.append(Problem(path=name, what="has no seal"))
        problems += [Problem(path=name, what=text) for text in recompute(record)]
    return problems


def recompute(record: RunRecord) -> list[str]:
    """Recompute what a record says of itself, and name what differs: statistics of raw samples, and identities."""
    wrong = []
    for m in record.measurements:
        problem = _differs(m, record.run.host_class)
        if problem is not None:
            wrong.append(f"{m.label} {m.metric.name} launch {m.launch}: {problem}")
    return wrong


def _differs(m: Measurement, host: str | None) -> str | None:
    from paceline.stats.estimates import launch_statistic  # noqa: PLC0415 - numpy only when needed

    if m.record_id != record_id(m.family, m.run_id, m.block, m.label, m.launch, m.metric.name):
        return f"{m.record_id} is not the identity of this measurement"
    if m.series_key != series_key(m.family, m.case_id, m.technique, host, m.metric.contract_id):
        return f"{m.series_key} is not the series of this case, technique, host class and contract"
    if (problem := _misnamed(m)) is not None or m.status != "ok":
        return problem
    try:
        value = launch_statistic(m.samples, m.metric.statistic)
    except ValueError as error:
        return str(error)
    return None if value == m.value else f"{m.value} is not the {value} of its samples"


def _misnamed(m: Measurement) -> str | None:
    """Say where a metric of today's contract is told otherwise than the family tells it."""
    contract_id, told = _of_today(m.family, m.metric.name)
    tells = (m.metric.unit, m.metric.better, m.metric.statistic)
    if m.metric.contract_id != contract_id or tells == told:
        return None
    return f"by its contract it is {', '.join(told)}, and not {', '.join(tells)}"


@cache
def _of_today(family: str, name: str) -> tuple[str | None, tuple[str, ...]]:
    """Return a metric's contract, unit, direction and statistic; no contract for one that is not known here."""
    try:
        metric = load_family(family).metric(name)
    except UserError:
        return None, ()
    return metric.contract_id, (metric.unit, metric.better, metric.statistic)


def merge(root: Path, sources: Iterable[Path], *, corrections: bool = False) -> tuple[int, list[Problem]]:
    """Copy other stores' sealed records into this one: a set union, refusing what does not hold.

    Args:
        root: The store that grows.
        sources: Other stores, or single record files.
        corrections: Take corrections that change what this store shows of its own runs or how its gate decides, too.

    Returns:
        The number of files added, and why others were refused.
    """
    added, problems = 0, []
    present = {p.name: p for p in record_paths(root)}
    guarded = None if corrections else frozenset(p.stem for p in present.values())
    for source in sources:
        if not source.exists():
            raise UserError("no such store or record", where=str(source))
        for path in record_paths(source) if source.is_dir() else [source]:
            reason = _merge_one(root, path, present, guarded)
            if reason == "":
                added += 1
            elif reason is not None:
                problems.append(Problem(path=str(path), what=reason))
    return added, problems


def _merge_one(
    root: Path, path: Path, present: dict[str, Path], guarded: frozenset[str] | None
) -> str | None:
    """Return "" when the file was added, None when it is already there, else why it was refused.

    Args:
        root: The store that grows.
        path: The foreign record.
        present: The store's files by name.
        guarded: Runs that foreign corrections must not touch; None lets every correction in.
    """
    if path.is_symlink():
        return "a symbolic link"
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_RECORD_BYTES:
            return f"the file is larger than {MAX_RECORD_BYTES} bytes"
        count = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            count += 1
            if len(line) > MAX_LINE_BYTES:
                return f"a line is longer than {MAX_LINE_BYTES} bytes"
            if count > MAX_RECORD_LINES:
                return f"the file has more than {MAX_RECORD_LINES} lines"
    try:
        record = read_record(path)
    except UserError as error:
        return error.what
    if not record.sealed:
        return "not sealed: the run is unfinished"
    if path.name != f"{record.run_id}.jsonl":
        return f"the file name does not fit its run id {record.run_id}"
    wrong = recompute(record)
    if wrong:
        return wrong[0]
    if path.name in present:
        same = present[path.name].read_bytes() == path.read_bytes()
        return None if same else "another file with the same run id is already in the store"
    if guarded is not None and (change := _change(record, guarded)) is not None:
        return f"a correction that {change}; --corrections takes it"
    target = root / record.run.started[:4] / record.run.started[5:7] / path.name
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = target.with_name(target.name + ".copy")
        shutil.copyfile(path, copy)
        os.link(copy, target)
        copy.unlink()
        add_to_manifest(root, target)
    present[path.name] = target
    return ""


def _change(record: RunRecord, own: frozenset[str]) -> str | None:
    """Say what a foreign record's events would change for this store's own runs or gate; None when nothing."""
    for event in record.events:
        if event.kind == "retract" and event.data.get("run_id") in own:
            return f"retracts {event.data['run_id']} ({event.data.get('reason')})"
        if event.kind == "baseline_set":
            return f"sets the baseline run of {', '.join(map(str, event.data.get('suites', ())))}"
        if event.kind == "waiver":
            return f"waives regressions of {event.data.get('suite')}"
    return None


def append_event(root: Path, event: Event) -> Path:
    """Record a correction (retraction, annotation, baseline …) as a file of its own."""
    run = Run(run_id=new_run_id(), started=utc(), reason="correction", argv=[], tool_version=__version__)
    writer = RecordWriter(root, run)
    writer.write(event)
    return writer.seal()


def retract(root: Path, run_id: str, reason: str) -> Path:
    """Withdraw a run: it stays in the store, and no report shows its numbers again."""
    return append_event(
        root,
        Event(kind="retract", at=utc(), run_id=run_id, data={"run_id": run_id, "reason": reason}),
    )


def compact(root: Path, target: Path) -> int:
    """Write one Parquet row for each measurement (a cache for fast reading); return the number of rows.

    Records are read and written one after another, so that memory holds no more than one of them.
    """
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only needed here
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"launch": pa.int64(), "n": pa.int64(), "value": pa.float64(), "samples": pa.list_(pa.float64())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in MEASUREMENT_COLUMNS])
    count = 0
    retracted = retractions(record_paths(root))
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for path in record_paths(root):
                try:
                    record = read_record(path)
                except UserError:
                    continue
                rows = list(measurement_rows(record)) if record.run_id not in retracted else []
                if rows:
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                count += len(rows)
        temporary.replace(target)
    return count
