"""Integrity of a store: checking what it holds, correcting, compressing and compacting.

Sealed files are never edited: a correction is an event in a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline import __version__
from paceline.base.errors import UserError
from paceline.records.format.contracts import impossible
from paceline.records.format.record import Event, Measurement, Run
from paceline.records.format.record_file import (
    Problem,
    content_of,
    digest_of,
    is_packed,
    packed_form,
    remove_copies,
    sync_folder,
    write_sealed,
)
from paceline.records.identity import new_run_id, record_id, series_host, series_key, utc
from paceline.records.store.folder import RunRecord, check_place, read_record, record_paths, twins
from paceline.records.store.lookup import retractions
from paceline.records.store.manifest import Entry, manifest_name, read_manifest
from paceline.records.store.record_writer import RecordWriter
from paceline.records.store.rows import MEASUREMENT_COLUMNS, measurement_rows
from paceline.records.store.storage import storage_errors


def verify(root: Path) -> list[Problem]:
    """Check every sealed file against the manifest and its own seal; find changed, missing and unknown files."""
    manifest = read_manifest(root)
    problems = list(manifest.problems)
    paths = record_paths(root)
    for name in sorted(manifest.entries.keys() - {manifest_name(root, path) for path in paths}):
        problems.append(Problem(path=name, what="missing: the manifest lists it, the folder lacks it"))
    read: dict[str, RunRecord] = {}
    for path in paths:
        found = _flaws(root, path, manifest.entries.get(manifest_name(root, path)), read)
        problems += [Problem(path=str(path.relative_to(root)), what=what) for what in found]
    return problems


def _flaws(root: Path, path: Path, entry: Entry | None, read: dict[str, RunRecord]) -> Iterator[str]:
    """Name what is wrong with a sealed file.

    Args:
        root: Its store.
        path: The file.
        entry: What the manifest says of it.
        read: Run id → what was read of it first, without its lines; gets this file too.
    """
    if entry is None:
        yield "not in the manifest"
    try:
        record = read_record(path)
    except UserError as error:
        with suppress(UserError):  # a damaged file has no digest
            yield from _changed(digest_of(path)[0], entry)
        yield error.what
        return
    yield from _changed(record.sha256, entry)
    try:
        check_place(root, record)
    except UserError as error:
        yield error.what
    known = replace(record, measurements=(), events=())  # memory holds no more than one record
    if (problem := twins(read.setdefault(record.run_id, known), record)) is not None:
        yield problem.what
    yield from recompute(record)


def _changed(sha256: str | None, entry: Entry | None) -> Iterator[str]:
    if entry is not None and sha256 != entry.sha256:
        yield "changed since it was sealed (digest differs)"


def recompute(record: RunRecord) -> list[str]:
    """Recompute what a record says of itself, and name what differs: statistics of raw samples, and identities."""
    wrong = []
    for m in record.measurements:
        host = series_host(record.run.host_class, record.run.runner, m.scale.get("ranks", 1))
        problem = _differs(m, host)
        if problem is not None:
            wrong.append(f"{m.label} {m.metric.name} launch {m.launch}: {problem}")
    return wrong


def _differs(m: Measurement, host: str | None) -> str | None:
    from paceline.stats.estimates import launch_statistic  # noqa: PLC0415 - numpy only when needed

    if m.record_id != record_id(m.family, m.run_id, m.block, m.label, m.launch, m.metric.name):
        return f"{m.record_id} is not the identity of this measurement"
    if m.series_key != series_key(m.family, m.case_id, m.technique, host, m.metric.contract_id):
        return f"{m.series_key} is not the series of this case, technique, host class and contract"
    if m.status != "ok":
        return None
    try:
        value = launch_statistic(m.samples, m.metric.statistic)
    except ValueError as error:
        return str(error)
    if value != m.value:
        return f"{m.value} is not the {value} of its samples"
    return impossible(m.family, m.metric, m.samples)


@dataclass(slots=True, kw_only=True)
class Compressed:
    """What ``compress`` did."""

    files: int = 0
    before_bytes: int = 0
    """Sizes of the plain files that it compressed."""
    after_bytes: int = 0
    """Sizes of the compressed ones in their place."""
    problems: list[Problem] = field(default_factory=list)
    """Files that were left as they are, and why."""


def compress(root: Path) -> Compressed:
    """Give every plain sealed record its compressed form; lines, digests and the manifest stay as they are.

    A plain file goes only when its compressed form is on the disk and holds the same lines. Killed at any time, it
    leaves each record in one form or in both, which is one record; another call does the rest.
    """
    done = Compressed()
    for path in record_paths(root):
        if is_packed(path):
            remove_copies(path)
            continue
        try:
            sizes = _compress_one(path)
        except UserError as error:
            done.problems.append(Problem(path=str(path.relative_to(root)), what=error.what))
            continue
        done.files, done.before_bytes, done.after_bytes = (
            done.files + 1,
            done.before_bytes + sizes[0],
            done.after_bytes + sizes[1],
        )
    return done


def _compress_one(path: Path) -> tuple[int, int]:
    """Compress a sealed file; return its size before and after.

    Raises:
        UserError: It does not hold, or its compressed form exists and holds other lines: both files stay.
    """
    record, target = read_record(path), packed_form(path)
    if not record.sealed:
        raise UserError("has no seal", where=str(path))
    with storage_errors(target):
        if not target.exists():
            with suppress(FileExistsError):  # another process was faster
                write_sealed(target, content_of(path))
        if digest_of(target)[0] != record.sha256:
            raise UserError(f"holds other lines than {target.name}", where=str(path))
        before, after = path.stat().st_size, target.stat().st_size
        remove_copies(target)
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    return before, after


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
    left_out = set(retractions([root]))
    with storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + ".tmp")
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for path in record_paths(root):
                try:
                    record = read_record(path)
                    check_place(root, record)
                except UserError:
                    continue
                rows = list(measurement_rows(record)) if record.run_id not in left_out else []
                left_out.add(record.run_id)  # its other form
                if rows:
                    writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                count += len(rows)
        temporary.replace(target)
    return count
