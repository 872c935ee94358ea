"""What is read of a record file again and again, without reading the file again.

An index in a cache has a sealed file's run and events, and of each measurement the names, the value and the place of
the line. Behind them it has the samples and other large fields of short lines, in a part that is read when somebody
asks for one of them: few do, of few records. An index belongs to a file as an entry of a version-control tool's does:
by its path, size, times and number. Whoever asks a measurement for more than the index has (proofs, fields of long
lines) gets it from the line itself, which is read then and checked as always. An index that was damaged, or made by
other code that reads records, is made anew from the file. It serves who shows records; what checks, merges or writes
them reads the files.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pydantic_core import from_json, to_json

import paceline
from paceline.base.collection import without_collection
from paceline.base.errors import UserError
from paceline.base.files.code_digest import code_digest
from paceline.base.files.stamp import Stamp, stamp_of
from paceline.records.format.contracts import mistold
from paceline.records.format.limits import said
from paceline.records.format.record import Event, Measurement, MetricId, Run, parse_line
from paceline.records.format.record_file import (
    MEMBER_BYTES,
    PARTIAL,
    Member,
    open_plain,
    present_form,
    read_around,
)
from paceline.records.store.folder import Place, Places, RunRecord, read_placed

SUFFIX = ".lines"
READERS, LIBRARIES = ("base", "records"), ("pydantic", "pydantic-core")
"""The code by which an index is made: packages of this one, and those that convert what is read."""
_READERS = tuple(Path(paceline.__file__).parent / name for name in READERS)
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
MOST_HELD = 2 * MEMBER_BYTES
"""Bytes that are held of a file at most, in which the next lines may be: a file of one large member is not held."""
LARGE, MOST_BYTES = "large", 8000
"""Names these fields where they stay in their line, since it is longer than that."""

_of_case = attrgetter(*(name for name in SHARED if name not in ("params", "metric", "options", "series_key")))
_of_launch = attrgetter(*OWN)


class Lines:
    """The lines of a record file, read one by one when somebody asks.

    Args:
        path: The file.
        stamp: What it was when its index was made.
        members: Where its compressed pieces begin; none of a plain file.
        seldom: Of each measurement the fields that may be large, as ``_keep`` writes them.
    """

    def __init__(self, path: Path, stamp: Stamp, members: Sequence[Member] = (), seldom: bytes = b"") -> None:
        self.path, self._stamp, self._members = path, stamp, members
        self._packed = seldom
        self._seldom: list[Mapping[str, Any]] | None = None
        self._held: tuple[int, bytes] = 0, b""
        """Where something begins that was read for a line before, and its bytes: most often the next line is in it."""

    def seldom(self, number: int) -> Mapping[str, Any]:
        """Return what the index has of the large fields of a measurement, by its number in the file."""
        if self._seldom is None:
            self._seldom = cast(list[Mapping[str, Any]], from_json(zlib.decompress(self._packed)))
            self._packed = b""
        return self._seldom[number]

    def read(self, place: Place) -> Run | Measurement | Event:
        """Read and check a line.

        Raises:
            UserError: The file is another one by now, or its line is not legal.
        """
        with open_plain(self.path) as file:  # not kept open: a store may have very many files
            if stamp_of(file.fileno()) != self._stamp:
                raise UserError("the record file was changed while it was read", where=str(self.path))
            found = self._held
            if not _covers(found, place):
                found = read_around(file, self.path, self._members, place)
                self._held = found if len(found[1]) <= MOST_HELD else (0, b"")
        at = place[0] - found[0]
        text = found[1][at : at + place[1]]
        try:
            return parse_line(text)
        except ValueError as error:
            where = f"{self.path}, byte {place[0]} of its lines"
            raise UserError(f"not a legal record line: {said(error)}", where=where) from error


def _covers(held: tuple[int, bytes], place: Place) -> bool:
    """Say whether bytes that begin somewhere have a line in them."""
    return held[0] <= place[0] and place[0] + place[1] <= held[0] + len(held[1])


class Indexed:
    """A measurement whose line is read when somebody asks for more than its index has.

    Args:
        case: The fields that all launches of its case share.
        row: Its row of the index: number of the case, place of its line, fields of its own.
        number: Of the measurement in its file.
        lines: Of its file.
    """

    __slots__ = ("_case", "_lines", "_number", "_row", "_whole")

    def __init__(self, case: SimpleNamespace, row: list[Any], number: int, lines: Lines) -> None:
        self._case, self._row, self._number, self._lines = case, row, number, lines
        self._whole: Measurement | None = None

    @property
    def series(self) -> Hashable:
        """Return what all launches of its case have for this metric, as ``folder.series_of`` does."""
        return id(self._case)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._whole is None:
            _, offset, length, *_ = self._row
            line = self._lines.read((offset, length))
            assert isinstance(line, Measurement)
            self._whole = line
        return getattr(self._whole, name)


_FIRST_OWN = 3
"""Where in a row of an index the measurement's own fields begin."""


def _own(at: int) -> property:
    """Return the property whose value stands at a place of a measurement's row."""

    def value(measurement: Indexed) -> Any:
        return measurement._row[at]

    return property(value)


def _seldom_there(name: str) -> property:
    """Return the property whose value is kept, is read from its line where that is long, or has its default."""

    def value(measurement: Indexed) -> Any:
        kept = measurement._lines.seldom(measurement._number)
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
    smallest: int = 0
    """Bytes of a file from which on it has an index: a smaller one is read as fast."""
    mode: int = 0o777
    """Of the folder where it is made, before the umask."""
    wanted: set[str] = field(default_factory=set)
    """Names that this build asked for."""
    unwritten: list[Callable[[], None]] = field(default_factory=list)
    """What is left to do for the next build: an index to write for each file that was read."""

    def read(self, path: Path) -> RunRecord:
        """Return a record from its index if that is of this very file, else read the file and leave its index to write.

        Raises:
            UserError: The file cannot be read, or a line of it is not legal.
        """
        path = present_form(path)
        try:
            before = stamp_of(path)
        except OSError as error:
            raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error
        if before[0] < self.smallest:
            return read_placed(path)[0]
        entry = self._entry(path)
        self.wanted.add(entry.name.removesuffix(SUFFIX))
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
            self.folder.mkdir(self.mode, parents=True, exist_ok=True)
        except OSError:
            return []  # nothing can be kept there
        if not os.access(self.folder, os.W_OK):
            return []
        found = [p for p in map(present_form, paths) if p.is_file() and not self._entry(p).exists()]
        return sorted(found, key=lambda path: path.stat().st_size, reverse=True)

    def write(self) -> None:
        """Keep the indexes of the files that were read."""
        with without_collection():
            while self.unwritten:
                self.unwritten.pop()()

    def _entry(self, path: Path) -> Path:
        known = f"{os.path.realpath(path)}\n{code_digest(_READERS, LIBRARIES)}"
        name = sha256(known.encode("utf-8", "surrogateescape")).hexdigest()
        return self.folder / f"{name}{SUFFIX}"

    def prune(self) -> None:
        """Remove what this build did not ask for."""
        for path in self.folder.glob(f"*{SUFFIX}*"):
            if path.name.removesuffix(SUFFIX) not in self.wanted:
                with suppress(OSError):  # it costs room, and nothing else
                    path.unlink()

    def prune_to(self, most_bytes: int) -> None:
        """Remove what was asked for longest ago, so that the folder has no more than some bytes."""
        used: list[tuple[float, int, Path]] = []
        for path in self.folder.glob(f"*{SUFFIX}*"):
            with suppress(OSError):
                found = path.stat()
                used.append((found.st_mtime, found.st_size, path))
        for _, size, path in sorted(used, reverse=True):
            most_bytes -= size
            if most_bytes < 0:
                with suppress(OSError):
                    path.unlink()

    def _kept(self, entry: Path, path: Path, stamp: Stamp) -> RunRecord | None:
        try:
            data = entry.read_bytes()
        except OSError:
            return None
        digest, payload = data[:32], data[32:]
        if digest != sha256(payload).digest():
            return None
        middle = 8 + int.from_bytes(payload[:8], "big")
        found = from_json(zlib.decompress(payload[8:middle]))
        if found["stamp"] != stamp:
            return None
        with suppress(OSError):
            os.utime(entry)  # it was asked for: see ``prune_to``
        lines = Lines(path, stamp, found["members"], payload[middle:])
        run = Run.model_validate(found["run"])
        metrics = [MetricId.model_construct(**metric) for metric in found["metrics"]]
        cases = [case | {"run_id": run.run_id} for case in found["cases"]]
        shared = [
            SimpleNamespace(**cases[case], metric=metrics[metric], series_key=key)
            for case, metric, key in found["series"]
        ]
        if any(mistold(cases[case]["family"], metrics[metric]) for case, metric in _pairs(found["series"])):
            return None  # its metric has changed since: reading the file says how
        return RunRecord(
            path=path,
            run=run,
            measurements=tuple(
                cast(Measurement, Indexed(shared[row[0]], row, number, lines))
                for number, row in enumerate(found["lines"])
            ),
            events=tuple(Event.model_construct(**event) for event in found["events"]),
            sealed=True,
            sha256=found["sha256"],
        )

    def _keep(self, entry: Path, stamp: Stamp, record: RunRecord, places: Places) -> None:
        """Keep an index whole or not at all; a folder that cannot be written costs time, and nothing else."""
        cases, metrics, series = _Table(), _Table(), _Table()
        rows, seldom = [], []
        for m, place in zip(record.measurements, places.measurements, strict=True):
            case = cases.number((id(m.params), id(m.options), *_of_case(m)), lambda: _case_of(m))  # noqa: B023
            metric = metrics.number(id(m.metric), m.metric.model_dump)
            number = series.number((case, metric, m.series_key), lambda: [case, metric, m.series_key])  # noqa: B023
            rows.append([number, *place, *_of_launch(m)])
            seldom.append(_short_fields(m, place[1]))
        found = {
            "stamp": stamp,
            "sha256": record.sha256,
            "members": places.members,
            "run": record.run.model_dump(mode="json"),
            "events": [event.model_dump(mode="json") for event in record.events],
            "cases": cases.rows,
            "metrics": metrics.rows,
            "series": series.rows,
            "lines": rows,
        }
        first = zlib.compress(to_json(found), 1)
        payload = b"".join((len(first).to_bytes(8, "big"), first, zlib.compress(to_json(seldom), 1)))
        temporary = entry.with_name(f"{entry.name}.{os.getpid()}")
        try:
            self.folder.mkdir(self.mode, parents=True, exist_ok=True)
            temporary.write_bytes(sha256(payload).digest() + payload)
            temporary.replace(entry)
        except OSError:
            with suppress(OSError):
                temporary.unlink()


class _Table:
    """Rows that are kept once, each by its number."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, row: Callable[[], Any]) -> int:
        """Return the number of the row of a key, which is made when the key comes first."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.rows)
            self.rows.append(row())
        return number


def _case_of(m: Measurement) -> dict[str, Any]:
    return {name: getattr(m, name) for name in SHARED if name not in ("run_id", "metric", "series_key")}


def _pairs(series: Sequence[Any]) -> set[tuple[int, int]]:
    """Return the cases and metrics that occur together."""
    return {(case, metric) for case, metric, _ in series}


def _short_fields(m: Measurement, length: int) -> dict[str, Any]:
    """Return what an index keeps of the fields that are seldom there, or may be large: not of a line of many bytes."""
    there = {name: value for name in SELDOM if (value := getattr(m, name)) is not None and value != []}
    return {LARGE: list(there)} if length > MOST_BYTES else there
