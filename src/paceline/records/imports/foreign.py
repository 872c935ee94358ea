"""From a parsed file of another tool to a run and its measurements, all marked as imported."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paceline import __version__
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import Metric, Scalar, load_family
from paceline.records.format.contracts import metric_id
from paceline.records.format.record import IMPORTED, Measurement, Run, dump_line
from paceline.records.format.record_file import MAX_LINE_BYTES
from paceline.records.identity import new_run_id, record_id, series_key, utc
from paceline.records.imports.formats import parse
from paceline.records.imports.reading import Foreign, Reading
from paceline.records.imports.resolution import COMPUTED, flags_of, unresolved
from paceline.records.store.folder import RunRecord, read_record
from paceline.records.store.record_writer import RecordWriter
from paceline.stats.estimates import launch_statistic

MAX_FILE_BYTES = 256 << 20
UNVERIFIED = "imported: the tool's own number; nothing here computed a reference"


def import_file(
    root: Path,
    path: Path,
    style: str,
    *,
    argv: Sequence[str] = (),
    given: dict[str, Scalar] | None = None,
    known: Iterable[RunRecord] = (),
) -> RunRecord:
    """Read another tool's file and add it to a store as a sealed record.

    Args:
        root: The store.
        path: The file.
        style: One of ``FORMATS``.
        argv: The command, already redacted.
        given: Parameters that the file does not state (``op``, ``ranks``), from the person who imports it.
        known: Records among which the same file may already be.

    Raises:
        UserError: The file cannot be read, is malformed (with ``file:line``), or was imported before.
    """
    data = _read(path)
    digest = hashlib.sha256(data).hexdigest()
    for record in known:
        if (record.run.imported_from or {}).get("sha256") == digest:
            raise UserError(f"this file was already imported, as run {record.run_id}", where=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError("not UTF-8 text", where=f"{path}:{line}") from error
    foreign = parse(style, text, str(path), given or {})
    if not foreign.readings:
        said = f" ({'; '.join(foreign.notes)})" if foreign.notes else ""
        raise UserError(f"the file holds no result of {foreign.tool}{said}", where=str(path))
    try:
        run = make_run(foreign, path.name, digest, style, argv)
        lines = make_measurements(foreign, run)
        longest = max(len(dump_line(line).encode()) for line in (run, *lines))
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise UserError(f"holds what a record cannot: {first[:200]}", where=str(path)) from error
    if longest > MAX_LINE_BYTES:
        raise UserError(f"one result takes more than {MAX_LINE_BYTES} bytes", where=str(path))
    writer = RecordWriter(root, run)
    writer.write(*lines)
    return read_record(writer.seal())


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"the file is larger than {MAX_FILE_BYTES} bytes", where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error


def make_run(foreign: Foreign, name: str, digest: str, style: str, argv: Sequence[str]) -> Run:
    """Make the run line: everything that is known is what the file says about itself."""
    return Run(
        run_id=new_run_id(),
        started=utc(),
        reason="import",
        argv=list(argv),
        tool_version=__version__,
        suites=[
            {
                "suite": suite_name(foreign),
                "version": 1,
                "family": IMPORTED,
                "description": f"Numbers that {foreign.tool} wrote.",
                "baseline": "",
                "metrics": dict.fromkeys((r.metric for r in foreign.readings), 0.0),
            }
        ],
        runner={"name": IMPORTED},
        host_class=f"{IMPORTED}: {foreign.host_class}" if foreign.host_class else None,
        device=dict(foreign.device) if foreign.device else None,
        code={"commit": None, "dirty": None, "reason": IMPORTED},
        imported_from={
            "format": style,
            "file": name,
            "sha256": digest,
            "tool": foreign.tool,
            "tool_version": foreign.tool_version,
            "measured": foreign.measured,
            "facts": dict(foreign.facts),
            "not_kept": list(foreign.not_kept),
            **({"skipped": dict(foreign.skipped)} if foreign.skipped else {}),
            **({"notes": notes} if (notes := [*foreign.notes, *repeated(foreign), *untold(foreign)]) else {}),
        },
    )


def suite_name(foreign: Foreign) -> str:
    """Return the name under which a tool's numbers are listed; no suite file has it."""
    return f"{IMPORTED}/{foreign.tool.lower().replace(' ', '-')}"


def repeated(foreign: Foreign) -> tuple[str, ...]:
    """Say how many results stand more than once in a file, which are further samples of one measurement."""
    counts = Counter(_key(reading) for reading in foreign.readings)
    more = sum(count - 1 for count in counts.values())
    return (
        (
            f"{number_of(more, 'result occurs', 'results occur')} again in the file: "
            "further samples of the same measurement",
        )
        if more
        else ()
    )


def untold(foreign: Foreign) -> tuple[str, ...]:
    """Say what the tool's output does not tell, and how often."""
    counts = Counter(f"{name}: {why}" for reading in foreign.readings for name, why in reading.absent.items())
    return tuple(f"{number} × absent: {what}" for what, number in counts.items())


def make_measurements(foreign: Foreign, run: Run) -> list[Measurement]:
    """Make one measurement for each technique, point, launch and metric; repeated lines become further samples."""
    merged: dict[str, Reading] = {}
    for reading in foreign.readings:
        first = merged.setdefault(_key(reading), reading)
        if first is not reading:
            first.numbers += reading.numbers
            first.failure = first.failure or reading.failure
            first.flags = tuple(dict.fromkeys((*first.flags, *reading.flags)))
            first.absent |= reading.absent
    return [_measurement(reading, run, suite_name(foreign)) for reading in merged.values()]


def _measurement(reading: Reading, run: Run, suite: str) -> Measurement:
    metric = load_family(IMPORTED).metric(reading.metric)
    block = _digest([suite, dict(reading.params)])
    case_id = _digest([suite, dict(reading.params), reading.label])
    failure, told = _failure(reading, metric), metric_id(IMPORTED, metric)
    samples = [] if failure else [n.base for n in reading.numbers if n.base is not None]
    unit = reading.numbers[0].unit
    scaled = unit != metric.unit or not samples or COMPUTED in reading.flags
    written: Any = {"as_written": [n.text for n in reading.numbers], "unit": unit} if scaled else None
    ranks = reading.params.get("ranks")
    return Measurement(
        record_id=record_id(IMPORTED, run.run_id, block, reading.label, reading.launch, metric.name),
        run_id=run.run_id,
        suite=suite,
        suite_version=1,
        family=IMPORTED,
        block=block,
        case_id=case_id,
        series_key=series_key(IMPORTED, case_id, reading.label, run.host_class, told.contract_id),
        launch=reading.launch,
        params=dict(reading.params),
        technique=reading.label,
        label=reading.label,
        role="technique",
        scale={"ranks": ranks} if isinstance(ranks, int) else {},
        metric=told,
        samples=samples,
        value=launch_statistic(samples, metric.statistic) if samples else None,
        n=len(samples),
        flags=list(dict.fromkeys([IMPORTED, *reading.flags, *flags_of(reading.numbers, metric.unit)])),
        absent=reading.absent or None,
        status=failure[0] if failure else "ok",
        reason=failure[1] if failure else None,
        detail=written,
        correctness={
            "oracle": None,
            "passed": None,
            "reason": UNVERIFIED,
            "reported": reading.reported or None,
        },
    )


def _failure(reading: Reading, metric: Metric) -> tuple[str, str] | None:
    """Return status and reason where the tool's numbers are none.

    Raises:
        UserError: A time below zero.
    """
    if reading.failure is not None:
        return reading.failure
    if any(n.base is None for n in reading.numbers):
        return "invalid", "the tool wrote NaN"
    if (why := unresolved(reading.numbers, metric.unit)) is not None:
        return "invalid", why
    if metric.unit == "s" and any((n.base or 0.0) < 0 for n in reading.numbers):
        raise UserError(f"a negative {metric.name}", where=reading.where)
    return None


def _key(reading: Reading) -> str:
    return _digest([reading.label, dict(reading.params), reading.launch, reading.metric])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
