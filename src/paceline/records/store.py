"""The store: a folder of sealed record files and a manifest; everything else can be deleted and rebuilt.

    results/local/2026/11/<run_id>.jsonl.gz        sealed, never changed again
    results/local/2026/11/<run_id>.jsonl.partial   a run in progress, or one that was interrupted
    results/local/MANIFEST.jsonl                   sha256 and size of every sealed record, appended under a lock

The manifest is about lines and not about how they are stored: it names each record by the path of its plain form,
``2026/11/<run_id>.jsonl``, and compressing a record changes nothing in it. A record in both forms is one record.

Runs may write into one store at the same time: each has its own file, and only the manifest is shared.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from errno import EEXIST
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paceline.base.errors import UserError, expected_one_of
from paceline.records.record import Event, Line, Measurement, Run, dump_line, parse_line, utc
from paceline.records.record_file import (
    PACKED,
    PARTIAL,
    PLAIN,
    digest_of,
    lines_of,
    packed_form,
    plain_form,
    present_form,
    run_id_of,
    sync_folder,
    write_sealed,
)
from paceline.records.storage import storage_errors

MANIFEST = "MANIFEST.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One loaded record file."""

    path: Path
    run: Run
    measurements: tuple[Measurement, ...]
    events: tuple[Event, ...]
    sealed: bool
    sha256: str | None = None
    """Digest of the file's lines, whether it is compressed or not; None for what was not read from one."""

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
        found = [r for r in self.records if r.run_id.startswith(name) or name in _names(r.path)]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise UserError(f"'{name}' fits {len(found)} runs", expected="more characters of the run id")
        raise UserError(
            f"the store has no run '{name}'",
            expected=expected_one_of(name, [r.run_id for r in runs[-8:]]),
            fix="paceline store ls",
        )


def _names(path: Path) -> tuple[str, str]:
    """Return the paths by which a record is known, whichever form it has."""
    return str(packed_form(path)), str(plain_form(path))


class RecordWriter:
    """Writes one run: a plain partial file while it goes on, a sealed and compressed one at the end."""

    def __init__(self, root: Path, run: Run, *, resume: bool = False) -> None:
        self.root = root
        self.final = sealed_path(root, run)
        self.partial = partial_path(root, run)
        self.run_id = run.run_id
        self._resumes = resume
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
            data = self.partial.read_bytes()
            plain = plain_form(self.final)
            earlier = [path for path in (self.final, plain) if path.exists()]
            if not all(self._resumes and self._sealed_before(path, data) for path in earlier):
                raise FileExistsError(EEXIST, os.strerror(EEXIST), str(self.final))
            write_sealed(self.final, data, replace=self.final in earlier)
            plain.unlink(missing_ok=True)
            add_to_manifest(self.root, self.final)
            self.partial.unlink()
            sync_folder(self.final.parent)
            os.close(self._file)
        return self.final

    def _sealed_before(self, path: Path, data: bytes) -> bool:
        """Say whether a sealed file is of a sealing of this very run that was killed before its end."""
        if path.samefile(self.partial):  # an earlier version gave the partial file a second name
            return True
        try:
            *lines, _ = lines_of(path)
        except (UserError, ValueError):
            return False
        return data.startswith(b"".join(lines))

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
    """Append a sealed record's path, and the digest and size of its lines, under a lock that other runs respect."""
    sha256, size = digest_of(path)
    entry = {"path": manifest_name(root, path), "sha256": sha256, "size_bytes": size}
    manifest = root / MANIFEST
    descriptor = os.open(manifest, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _write_all(descriptor, (json.dumps(entry, separators=(",", ":")) + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def manifest_name(root: Path, path: Path) -> str:
    """Return the name of a record in the manifest, whichever form its file has."""
    return str(plain_form(path).relative_to(root))


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


def sealed_path(root: Path, run: Run) -> Path:
    """Return where a run's sealed record lies."""
    return root / run.started[:4] / run.started[5:7] / f"{run.run_id}{PACKED}"


def partial_path(root: Path, run: Run) -> Path:
    """Return where a run is written while it goes on."""
    return sealed_path(root, run).with_name(f"{run.run_id}{PLAIN}{PARTIAL}")


def record_paths(root: Path, *, partial: bool = False) -> list[Path]:
    """List record files in the order of their run ids; a record in both forms has two."""
    endings = [PLAIN, PACKED, *([PLAIN + PARTIAL] if partial else [])]
    paths = (p for ending in endings for p in root.glob(f"{RECORD_FOLDERS}/*{ending}"))
    return sorted((p for p in paths if p.is_file()), key=lambda p: p.name)


def sealed_paths(root: Path) -> list[Path]:
    """List the files of runs that are sealed: one whose sealing was killed before its end has its partial file yet."""
    return [p for p in record_paths(root) if not p.with_name(run_id_of(p) + PLAIN + PARTIAL).exists()]


def is_recorded(root: Path, run_id: str) -> bool:
    """Say whether a run is sealed."""
    return any(run_id_of(p) == run_id for p in sealed_paths(root))


Place = tuple[int, int]
"""Where a line begins among the (uncompressed) lines of its file, and how many bytes it has."""


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
    path = present_form(path)
    digest = hashlib.sha256()
    run: Run | None = None
    measurements: list[Measurement] = []
    events: list[Event] = []
    seen: set[str] = set()
    places: dict[str, list[Place]] = {"run": [], "measurement": [], "event": []}
    sealed = False
    offset = 0
    for number, raw in enumerate(lines_of(path), start=1):
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
                sealed = line.data.get("sha256") == digest.hexdigest()
                if not sealed:
                    raise UserError("the content does not fit the seal", where=f"{path}:{number}")
            events.append(line)
        digest.update(raw)
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
        sha256=digest.hexdigest(),
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
    seen: dict[str, RunRecord] = {}
    for root in roots:
        for path in record_paths(root, partial=partial) if root.is_dir() else [root]:
            try:
                record = read(path)
            except UserError as error:
                loaded.problems.append(Problem(path=str(path), what=error.what))
                continue
            first = seen.setdefault(record.run_id, record)
            if first is record:
                loaded.records.append(record)
            elif (problem := twins(first, record)) is not None:
                loaded.problems.append(problem)
    for record in loaded.records:
        for event in record.events:
            if event.kind == "retract" and "run_id" in event.data:
                reason = str(event.data.get("reason") or "no reason given")
                loaded.retracted[str(event.data["run_id"])] = reason
    loaded.records = [r for r in loaded.records if r.run_id not in loaded.retracted]
    return loaded


def twins(first: RunRecord, second: RunRecord) -> Problem | None:
    """Say whether two sealed files of one run, such as its plain and its compressed form, hold different lines."""
    if not (first.sealed and second.sealed) or first.sha256 == second.sha256:
        return None
    return Problem(path=str(second.path), what=f"holds other lines than {first.path}, of the same run id")


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
