"""The store: a folder of sealed record files and a manifest; everything else can be deleted and rebuilt.

    results/local/2026/11/<run_id>.jsonl           sealed, never changed again
    results/local/2026/11/<run_id>.jsonl.partial   a run in progress, or one that was interrupted
    results/local/MANIFEST.jsonl                   path, sha256 and size of every sealed file, appended under a lock

Runs may write into one store at the same time: each has its own file, and only the manifest is shared.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paceline.base.errors import UserError, expected_one_of
from paceline.records.record import Event, Line, Measurement, Run, dump_line, parse_line, utc
from paceline.records.storage import storage_errors

MANIFEST = "MANIFEST.jsonl"
PARTIAL = ".partial"
MAX_LINE_BYTES = 16 << 20
"""A longer line is refused when merging: raw samples of one launch stay far below it."""
MAX_RECORD_BYTES, MAX_RECORD_LINES = 1 << 30, 1_000_000
"""So is a larger file: the largest run of all suites stays far below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One loaded record file."""

    path: Path
    run: Run
    measurements: tuple[Measurement, ...]
    events: tuple[Event, ...]
    sealed: bool
    sha256: str | None = None
    """Digest of the file's bytes; None for what was not read from one."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What somebody added to a run later."""

    at: str
    text: str


@dataclass(slots=True, kw_only=True)
class Problem:
    """Something that ``verify`` found."""

    path: str
    what: str


@dataclass(slots=True, kw_only=True)
class Loaded:
    """Everything that a store holds, with retracted runs taken out."""

    records: list[RunRecord] = field(default_factory=list)
    retracted: dict[str, str] = field(default_factory=dict)
    """run_id → reason."""
    problems: list[Problem] = field(default_factory=list)

    def notes(self, run_id: str) -> list[Note]:
        """Return what was added to a run later, oldest first."""
        events = (e for r in sorted(self.records, key=lambda r: r.run_id) for e in r.events)
        return [
            Note(at=e.at, text=str(e.data["text"]))
            for e in events
            if e.kind == "annotate" and e.data.get("run_id") == run_id and "text" in e.data
        ]

    def find(self, name: str) -> RunRecord:
        """Return a run by id, unique prefix of an id, ``latest``, or file path.

        Raises:
            UserError: No such run, or several.
        """
        runs = [r for r in self.records if r.run.reason != "correction"]
        if name == "latest" and runs:
            return max(runs, key=lambda r: r.run_id)
        found = [r for r in self.records if r.run_id.startswith(name) or str(r.path) == name]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise UserError(f"'{name}' fits {len(found)} runs", expected="more characters of the run id")
        raise UserError(
            f"the store has no run '{name}'",
            expected=expected_one_of(name, [r.run_id for r in runs[-8:]]),
            fix="paceline store ls",
        )


class RecordWriter:
    """Writes one run: a partial file while it goes on, a sealed one at the end."""

    def __init__(self, root: Path, run: Run, *, resume: bool = False) -> None:
        year, month = run.started[:4], run.started[5:7]
        self.root = root
        self.final = root / year / month / f"{run.run_id}.jsonl"
        self.partial = self.final.with_name(self.final.name + PARTIAL)
        self.run_id = run.run_id
        self.seen: set[str] = set()
        """Record ids already in the file; a second write of one is ignored."""
        with storage_errors(self.partial, run_id=self.run_id, root=self.root):
            self.final.parent.mkdir(parents=True, exist_ok=True)
            end = self._read_back() if resume else 0
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (0 if resume else os.O_EXCL)
            self._file = os.open(self.partial, flags | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not end:
            self.write(run)

    def _read_back(self) -> int:
        """Drop a torn last line, and a seal whose sealing did not end; remember what the file already holds.

        Returns:
            How many bytes it keeps; none when a full disk let the run line not be written.
        """
        data = self.partial.read_bytes()
        end = 0
        for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            line = parse_line(raw)
            if isinstance(line, Event) and line.kind == "seal":
                break
            end += len(raw)
            if isinstance(line, Measurement):
                self.seen.add(line.record_id)
        if end < len(data):
            os.truncate(self.partial, end)
        return end

    def write(self, *lines: Line) -> None:
        """Append lines; what was written survives the death of this process."""
        fresh = []
        for line in lines:
            if isinstance(line, Measurement):
                if line.record_id in self.seen:
                    continue
                self.seen.add(line.record_id)
            fresh.append(dump_line(line))
        if fresh:
            with storage_errors(self.partial, run_id=self.run_id, root=self.root):
                _write_all(self._file, ("\n".join(fresh) + "\n").encode())

    def seal(self) -> Path:
        """Close the run: add the seal, flush to the disk, give the file its final name, enter it in the manifest."""
        with storage_errors(self.partial, run_id=self.run_id, root=self.root):
            digest = hashlib.sha256(self.partial.read_bytes()).hexdigest()
            self.write(Event(kind="seal", at=utc(), run_id=self.run_id, data={"sha256": digest}))
            os.fsync(self._file)
            if self.final.exists() and self.final.samefile(self.partial):
                self.final.unlink()
            os.link(self.partial, self.final)
            _sync_folder(self.final.parent)
            add_to_manifest(self.root, self.final)
            self.partial.unlink()
            os.close(self._file)
        return self.final

    def abandon(self) -> None:
        """Close the file and leave it partial, for ``--resume``."""
        os.close(self._file)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write a whole line or nothing: a short write (full disk) is taken back, so that the file stays well-formed."""
    begin = os.fstat(descriptor).st_size
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        os.ftruncate(descriptor, begin)
        raise


def add_to_manifest(root: Path, path: Path) -> None:
    """Append a sealed file's path, digest and size, under a lock that other runs respect."""
    entry = {
        "path": str(path.relative_to(root)),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "size_bytes": path.stat().st_size,
    }
    manifest = root / MANIFEST
    descriptor = os.open(manifest, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _write_all(descriptor, (json.dumps(entry, separators=(",", ":")) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_manifest(root: Path) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries by path; an unreadable line raises ``UserError``."""
    entries: dict[str, dict[str, Any]] = {}
    path = root / MANIFEST
    if not path.is_file():
        return entries
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        try:
            entry = json.loads(text)
            entries[str(entry["path"])] = entry
        except (ValueError, KeyError, TypeError) as error:
            raise UserError("the manifest has an unreadable line", where=f"{path}:{number}") from error
    return entries


RECORD_FOLDERS = "[0-9][0-9][0-9][0-9]/[0-9][0-9]"
"""Year and month: other folders of a store, such as those of jobs, hold no records."""


def record_paths(root: Path, *, partial: bool = False) -> list[Path]:
    """List record files in the order of their run ids."""
    patterns = [f"{RECORD_FOLDERS}/*.jsonl", *([f"{RECORD_FOLDERS}/*.jsonl{PARTIAL}"] if partial else [])]
    paths = (p for pattern in patterns for p in root.glob(pattern))
    return sorted((p for p in paths if p.is_file()), key=lambda p: p.name)


Place = tuple[int, int]
"""Where a line begins in its file, and how many bytes it has."""


def read_record(path: Path) -> RunRecord:
    """Read one record file.

    Raises:
        UserError: A line that is not legal, a missing run line, or a seal that does not fit.
    """
    return read_placed(path)[0]


def read_placed(path: Path) -> tuple[RunRecord, dict[str, list[Place]]]:
    """Read one record file, and return beside it the places of its lines by their kind, in order.

    Raises:
        UserError: As ``read_record``.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error
    run: Run | None = None
    measurements: list[Measurement] = []
    events: list[Event] = []
    seen: set[str] = set()
    places: dict[str, list[Place]] = {"run": [], "measurement": [], "event": []}
    sealed = False
    offset = 0
    for number, raw in enumerate(data.splitlines(keepends=True), start=1):
        try:
            line = parse_line(raw)
        except (ValueError, ValidationError) as error:
            if path.name.endswith(PARTIAL) and not raw.endswith(b"\n"):
                break
            first = str(error).splitlines()[0]
            raise UserError(f"not a legal record line: {first}", where=f"{path}:{number}") from error
        misplaced = _misplaced(line, run, seen, sealed)
        if misplaced is not None:
            raise UserError(misplaced, where=f"{path}:{number}")
        if isinstance(line, Run):
            run = line
        elif isinstance(line, Measurement):
            seen.add(line.record_id)
            measurements.append(line)
        else:
            if line.kind == "seal":
                sealed = line.data.get("sha256") == hashlib.sha256(data[:offset]).hexdigest()
                if not sealed:
                    raise UserError("the content does not fit the seal", where=f"{path}:{number}")
            events.append(line)
        places[line.line].append((offset, len(raw)))
        offset += len(raw)
    if run is None:
        raise UserError("the file has no run line", where=str(path))
    record = RunRecord(
        path=path,
        run=run,
        measurements=tuple(measurements),
        events=tuple(events),
        sealed=sealed,
        sha256=hashlib.sha256(data).hexdigest(),
    )
    return record, places


def _misplaced(line: Line, run: Run | None, seen: set[str], sealed: bool) -> str | None:
    """Say why a legal line must not stand where it does, or None."""
    if sealed:
        return "a line follows the seal"
    if isinstance(line, Run):
        return None if run is None else "a second run line"
    if run is None:
        return "the file does not begin with its run line"
    if isinstance(line, Measurement):
        if line.run_id != run.run_id:
            return f"a measurement of another run, {line.run_id}"
        if line.record_id in seen:
            return f"the measurement {line.record_id} occurs twice"
    return None


def load(
    roots: Sequence[Path], *, partial: bool = False, read: Callable[[Path], RunRecord] = read_record
) -> Loaded:
    """Read all records of some stores; unreadable files become problems, never silence.

    Args:
        roots: Folders of stores, and single files.
        partial: Also runs that go on, or were interrupted.
        read: Gives the record of a file, or raises ``UserError``.
    """
    loaded = Loaded()
    seen: set[str] = set()
    for root in roots:
        for path in record_paths(root, partial=partial) if root.is_dir() else [root]:
            try:
                record = read(path)
            except UserError as error:
                loaded.problems.append(Problem(path=str(path), what=error.what))
                continue
            if record.run_id not in seen:
                seen.add(record.run_id)
                loaded.records.append(record)
    for record in loaded.records:
        for event in record.events:
            if event.kind == "retract" and "run_id" in event.data:
                reason = str(event.data.get("reason") or "no reason given")
                loaded.retracted[str(event.data["run_id"])] = reason
    loaded.records = [r for r in loaded.records if r.run_id not in loaded.retracted]
    return loaded


MEASUREMENT_COLUMNS = (
    "record_id",
    "run_id",
    "started",
    "host_class",
    "runner",
    "suite",
    "family",
    "case_id",
    "series_key",
    "block",
    "label",
    "technique",
    "role",
    "launch",
    "metric",
    "unit",
    "value",
    "n",
    "status",
    "reason",
    "params",
    "samples",
)
"""Columns of the long table of measurements."""


def measurement_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Flatten a record's measurements into rows for tables and exports."""
    for m in record.measurements:
        yield {
            "record_id": m.record_id,
            "run_id": m.run_id,
            "started": record.run.started,
            "host_class": record.run.host_class,
            "runner": record.run.runner.get("name"),
            "suite": m.suite,
            "family": m.family,
            "case_id": m.case_id,
            "series_key": m.series_key,
            "block": m.block,
            "label": m.label,
            "technique": m.technique,
            "role": m.role,
            "launch": m.launch,
            "metric": m.metric.name,
            "unit": m.metric.unit,
            "value": m.value,
            "n": m.n,
            "status": m.status,
            "reason": m.reason,
            "params": json.dumps(m.params, sort_keys=True),
            "samples": list(m.samples),
        }


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
