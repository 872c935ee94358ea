"""What a site needs of a record file to know that its pages are the same, without reading the file again.

An index beside the kept pages has, for each line of a sealed file, the names, the value and the place of the line. It
belongs to a file as an entry of a version-control tool's index does: by its path, size, times and number. Whoever asks
a measurement for more than the index has (samples, accounts, proofs) gets it from the line itself, which is read then
and checked as always. An index that was damaged, or made by other code, is made anew from the file.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

from paceline.base.errors import UserError
from paceline.records.limits import said
from paceline.records.record import Event, Measurement, MetricId, Run, parse_line
from paceline.records.record_file import PARTIAL, Member, members_of, open_plain, present_form, read_piece
from paceline.records.store import Place, RunRecord, read_placed
from paceline.report.forks import Files, Job
from paceline.report.pagecache import code_digest

SUFFIX = ".lines"
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
)
"""Fields of a case that all its launches share: kept once."""
OWN = ("launch", "value", "n", "status", "reason", "flags", "ceilings", "absent")
"""Fields of each measurement that an index keeps, beside the samples of proportions, which every page counts."""

Stamp = list[int]

_of_case = attrgetter(*(name for name in SHARED if name not in ("params", "metric")))
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
        facts: Field of the index → value.
        lines: Of its file.
        place: Of its own line.
    """

    __slots__ = (*SHARED, *OWN, "_lines", "_place", "_whole", "samples")

    def __init__(self, facts: dict[str, Any], lines: Lines, place: Place) -> None:
        for name, value in facts.items():
            setattr(self, name, value)
        self._lines, self._place = lines, place
        self._whole: Measurement | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._whole is None:
            line = self._lines.read(self._place)
            assert isinstance(line, Measurement)
            self._whole = line
        return getattr(self._whole, name)


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
        name = sha256(
            f"{os.path.realpath(path)}\n{code_digest()}".encode("utf-8", "surrogateescape")
        ).hexdigest()
        self.wanted.add(name)
        entry = self.folder / f"{name}{SUFFIX}"
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
        found = json.loads(zlib.decompress(payload))
        if found["stamp"] != stamp:
            return None
        lines = Lines(path, stamp, found["members"])
        run = lines.read(tuple(found["run"]))
        events = [lines.read(tuple(place)) for place in found["events"]]
        assert isinstance(run, Run)
        shared = [
            case | {"metric": MetricId.model_construct(**case["metric"]), "run_id": run.run_id}
            for case in found["cases"]
        ]
        measurements = [
            cast(
                Measurement,
                Indexed(shared[case] | dict(zip(OWN, own, strict=True)) | samples, lines, (offset, length)),
            )
            for case, offset, length, samples, *own in found["lines"]
        ]
        return RunRecord(
            path=path,
            run=run,
            measurements=tuple(measurements),
            events=tuple(e for e in events if isinstance(e, Event)),
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
            key = (_of_case(m), _of_metric(m.metric), tuple(m.params.items()))
            if key not in cases:
                cases[key] = len(shared)
                shared.append({name: _plain(m, name) for name in SHARED[1:]})
            counted = {"samples": m.samples} if m.samples and set(m.samples) <= {0.0, 1.0} else {}
            rows.append([cases[key], *place, counted, *_of_launch(m)])
        found = {
            "stamp": stamp,
            "sha256": record.sha256,
            "members": members,
            "run": places["run"][0],
            "events": places["event"],
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


def _plain(m: Measurement, name: str) -> Any:
    value = getattr(m, name)
    return value.model_dump() if isinstance(value, MetricId) else value
