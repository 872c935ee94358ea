"""What a site needs of a record file to know that its pages are the same, without reading the file again.

An index beside the kept pages has a sealed file's run and events, and of each measurement the names, the value and the
place of the line. It belongs to a file as an entry of a version-control tool's index does: by its path, size, times
and number. Whoever asks a measurement for more than the index has (samples, accounts, proofs) gets it from the line
itself, which is read then and checked as always. An index that was damaged, or made by other code that reads records,
is made anew from the file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pydantic_core import from_json

from paceline.base.collection import without_collection
from paceline.base.errors import UserError
from paceline.records.contracts import mistold
from paceline.records.limits import said
from paceline.records.record import Event, Measurement, MetricId, Run, parse_line
from paceline.records.record_file import PARTIAL, Member, members_of, open_plain, present_form, read_piece
from paceline.records.store import Place, RunRecord, read_placed
from paceline.report.forks import Files, Job, at_work
from paceline.report.pagecache import code_digest

SUFFIX = ".lines"
READERS = ("base", "records", "report/recordindex.py")
"""The code by which an index is made, in this package."""
SHARED = (
    "run_id",
    "suite",
    "suite_version",
    "family",
    "block",
    "case_id",
    "series_key",
    "params",
    "technique",
    "label",
    "role",
    "metric",
    "options",
)
"""Fields of a case that all its launches share: kept once."""
OWN = ("launch", "value", "n", "status", "reason", "flags", "ceilings", "absent")
"""Fields of each measurement that an index keeps."""
SELDOM: Mapping[str, Any] = {
    "samples": [],
    "accounting": None,
    "predicted": None,
    "stop_reason": None,
    "correctness": None,
}
"""Fields that an index keeps where a measurement has them and its line is short, each with its default."""
LARGE, MOST_BYTES = "large", 8000
"""Names these fields where they stay in their line, since it is longer than that."""

Stamp = list[int]

_of_case = attrgetter(*(name for name in SHARED if name not in ("params", "metric", "options")))
_of_metric = attrgetter(*MetricId.model_fields)
_of_launch = attrgetter(*OWN)


class Lines:
    """The lines of a record file, read one by one when somebody asks.

    Args:
        path: The file.
        stamp: What it was when its index was made.
        members: Where its compressed pieces begin; none of a plain file.
    """

    def __init__(self, path: Path, stamp: Stamp, members: Sequence[Member] = ()) -> None:
        self.path, self._stamp, self._members = path, stamp, members

    def read(self, place: Place) -> Run | Measurement | Event:
        """Read and check a line.

        Raises:
            UserError: The file is another one by now, or its line is not legal.
        """
        with open_plain(self.path) as file:  # not kept open: a store may have very many files
            if stamp_of(file.fileno()) != self._stamp:
                raise UserError("the record file was changed while it was read", where=str(self.path))
            text = read_piece(file, self.path, self._members, place)
        try:
            return parse_line(text)
        except ValueError as error:
            where = f"{self.path}, byte {place[0]} of its lines"
            raise UserError(f"not a legal record line: {said(error)}", where=where) from error


class Indexed:
    """A measurement whose line is read when somebody asks for more than its index has.

    Args:
        case: The fields that all launches of its case share.
        row: Its row of the index: number of the case, place of its line, fields that may be large, fields of its own.
        lines: Of its file.
    """

    __slots__ = ("_case", "_lines", "_row", "_whole")

    def __init__(self, case: SimpleNamespace, row: list[Any], lines: Lines) -> None:
        self._case, self._row, self._lines = case, row, lines
        self._whole: Measurement | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._whole is None:
            _, offset, length, *_ = self._row
            line = self._lines.read((offset, length))
            assert isinstance(line, Measurement)
            self._whole = line
        return getattr(self._whole, name)


_KEPT, _FIRST_OWN = 3, 4
"""Where in a row of an index stand the fields that may be large, and where the measurement's own fields begin."""


def _own(at: int) -> property:
    """Return the property whose value stands at a place of a measurement's row."""

    def value(measurement: Indexed) -> Any:
        return measurement._row[at]

    return property(value)


def _seldom_there(name: str) -> property:
    """Return the property whose value is kept, is read from its line where that is long, or has its default."""

    def value(measurement: Indexed) -> Any:
        kept = measurement._row[_KEPT]
        if name in kept.get(LARGE, ()):
            return measurement.__getattr__(name)
        return kept.get(name, SELDOM[name])

    return property(value)


for _name in SHARED:
    setattr(Indexed, _name, property(attrgetter(f"_case.{_name}")))
for _at, _name in enumerate(OWN, start=_FIRST_OWN):
    setattr(Indexed, _name, _own(_at))
for _name in SELDOM:
    setattr(Indexed, _name, _seldom_there(_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIndex:
    """A folder of indexes, one for each record file that a build has seen."""

    folder: Path
    wanted: set[str] = field(default_factory=set)
    """Names that this build asked for."""
    unwritten: list[Job] = field(default_factory=list)
    """What is left to do for the next build: an index to write for each file that was read."""

    def read(self, path: Path) -> RunRecord:
        """Return a record from its index if that is of this very file, else read the file and leave its index to write.

        Raises:
            UserError: The file cannot be read, or a line of it is not legal.
        """
        path = present_form(path)
        entry = self._entry(path)
        self.wanted.add(entry.name.removesuffix(SUFFIX))
        try:
            before = stamp_of(path)
        except OSError as error:
            raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error
        kept = self._kept(entry, path, before)
        if kept is not None:
            return kept
        record, places = read_placed(path)
        if record.sealed and not path.name.endswith(PARTIAL) and stamp_of(path) == before:
            self.unwritten.append(partial(self._keep, entry, before, record, places))
        return record

    def without(self, paths: Sequence[Path]) -> list[Path]:
        """Return the files of which there is no index yet, the largest first; none where none can be kept."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []  # nothing can be kept there
        if not os.access(self.folder, os.W_OK):
            return []
        found = [p for p in map(present_form, paths) if p.is_file() and not self._entry(p).exists()]
        return sorted(found, key=lambda path: path.stat().st_size, reverse=True)

    def make(self, paths: Sequence[Path], processes: int) -> Iterator[str]:
        """Read files and keep their indexes, in several processes; yield each path when that is done.

        What cannot be read has no index afterwards: ``read`` says why.
        """
        with at_work([partial(self._made, path) for path in paths], processes) as made:
            for path, _ in made:
                yield path

    def _made(self, path: Path) -> Files:
        """Let the index of a file be there for the next who asks: a job."""
        with without_collection():
            self._make(path)  # what it has read is gone before the collector looks again
        return [(str(path), "")]

    def _make(self, path: Path) -> None:
        one = replace(self, unwritten=[])
        with suppress(UserError):
            one.read(path)
        for job in one.unwritten:
            job()

    def _entry(self, path: Path) -> Path:
        known = f"{os.path.realpath(path)}\n{code_digest(READERS)}"
        name = sha256(known.encode("utf-8", "surrogateescape")).hexdigest()
        return self.folder / f"{name}{SUFFIX}"

    def prune(self) -> None:
        """Remove what this build did not ask for."""
        for path in self.folder.glob(f"*{SUFFIX}*"):
            if path.name.removesuffix(SUFFIX) not in self.wanted:
                with suppress(OSError):  # it costs room, and nothing else
                    path.unlink()

    def _kept(self, entry: Path, path: Path, stamp: Stamp) -> RunRecord | None:
        try:
            data = entry.read_bytes()
        except OSError:
            return None
        digest, payload = data[:32], data[32:]
        if digest != sha256(payload).digest():
            return None
        found = from_json(zlib.decompress(payload))
        if found["stamp"] != stamp:
            return None
        lines = Lines(path, stamp, found["members"])
        run = Run.model_validate(found["run"])
        shared = [
            SimpleNamespace(
                **case | {"metric": MetricId.model_construct(**case["metric"]), "run_id": run.run_id}
            )
            for case in found["cases"]
        ]
        if any(mistold(*told) for told in {(case.family, case.metric) for case in shared}):
            return None  # its metric has changed since: reading the file says how
        return RunRecord(
            path=path,
            run=run,
            measurements=tuple(
                cast(Measurement, Indexed(shared[row[0]], row, lines)) for row in found["lines"]
            ),
            events=tuple(Event.model_construct(**event) for event in found["events"]),
            sealed=True,
            sha256=found["sha256"],
        )

    def _keep(self, entry: Path, stamp: Stamp, record: RunRecord, places: dict[str, list[Place]]) -> Files:
        """Keep an index whole or not at all; a folder that cannot be written costs time, and nothing else."""
        try:
            members = members_of(record.path)
        except (OSError, UserError):  # it was changed or removed meanwhile
            return []
        cases: dict[tuple[Any, ...], int] = {}
        shared: list[dict[str, Any]] = []
        rows = []
        for m, place in zip(record.measurements, places["measurement"], strict=True):
            key = (_of_case(m), _of_metric(m.metric), tuple(m.params.items()), repr(m.options))
            if key not in cases:
                cases[key] = len(shared)
                shared.append({name: _plain(m, name) for name in SHARED[1:]})
            rows.append([cases[key], *place, _short_fields(m, place[1]), *_of_launch(m)])
        found = {
            "stamp": stamp,
            "sha256": record.sha256,
            "members": members,
            "run": record.run.model_dump(mode="json"),
            "events": [event.model_dump(mode="json") for event in record.events],
            "cases": shared,
            "lines": rows,
        }
        payload = zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)
        temporary = entry.with_name(f"{entry.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(sha256(payload).digest() + payload)
            temporary.replace(entry)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
        return []


def stamp_of(file: Path | int) -> Stamp:
    """Return size, times in nanoseconds, device and number of a file."""
    found = file.stat() if isinstance(file, Path) else os.fstat(file)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino]


def _short_fields(m: Measurement, length: int) -> dict[str, Any]:
    """Return what an index keeps of the fields that are seldom there, or may be large: not of a line of many bytes."""
    there = {name: value for name in SELDOM if (value := getattr(m, name)) is not None and value != []}
    return {LARGE: list(there)} if length > MOST_BYTES else there


def _plain(m: Measurement, name: str) -> Any:
    value = getattr(m, name)
    return value.model_dump() if isinstance(value, MetricId) else value
