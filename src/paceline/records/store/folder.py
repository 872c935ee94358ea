"""The store: a folder of sealed record files and a manifest; everything else can be deleted and rebuilt.

    results/local/2026/11/<run_id>.jsonl.gz        sealed, never changed again
    results/local/2026/11/<run_id>.jsonl.partial   a run in progress, or one that was interrupted
    results/local/MANIFEST.jsonl                   sha256 and size of every sealed record, appended under a lock

The manifest is about lines and not about how they are stored: it names each record by the path of its plain form,
``2026/11/<run_id>.jsonl``, and compressing a record changes nothing in it. A record in both forms is one record.

Runs may write into one store at the same time: each has its own file, and only the manifest is shared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.base.collection import without_collection
from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.records.format.contracts import mistold
from paceline.records.format.limits import said
from paceline.records.format.record import Event, Line, Measurement, Run
from paceline.records.format.record_file import (
    PACKED,
    PARTIAL,
    PLAIN,
    Member,
    Problem,
    lines_of,
    packed_form,
    plain_form,
    present_form,
    run_id_of,
)
from paceline.records.format.repeated_lines import RepeatedLines
from paceline.records.store.manifest import Manifest, manifest_name, read_manifest


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
class Loaded:
    """Everything that a store holds, with retracted runs taken out."""

    records: list[RunRecord] = field(default_factory=list)
    retracted: dict[str, str] = field(default_factory=dict)
    """run_id → reason."""
    problems: list[Problem] = field(default_factory=list)
    _notes: dict[str, list[Note]] | None = field(default=None, init=False, repr=False, compare=False)
    """run_id → what was added to it, once somebody has asked; records are not changed any more by then."""

    def notes(self, run_id: str) -> list[Note]:
        """Return what was added to a run later, oldest first."""
        if self._notes is None:
            self._notes = {}
            for record in sorted(self.records, key=lambda r: r.run_id):
                for event in record.events:
                    if event.kind == "annotate" and "text" in event.data:
                        about = self._notes.setdefault(str(event.data.get("run_id")), [])
                        about.append(Note(at=event.at, text=str(event.data["text"])))
        return self._notes.get(run_id, [])

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
            raise UserError(
                f"'{name}' fits {number_of(len(found), 'run')}", expected="more characters of the run id"
            )
        raise no_such_run(name, [r.run_id for r in runs[-8:]])


def no_such_run(name: str, newest: Sequence[str]) -> UserError:
    """Return what tells a person that no run is called so.

    Args:
        name: What the person wrote.
        newest: Ids of runs that there are; none where a store has none at all.
    """
    if newest:
        return UserError(
            f"the store has no run '{name}'", expected=expected_one_of(name, newest), fix="paceline store ls"
        )
    return UserError(
        f"the store has no run '{name}': nothing is recorded in it yet",
        expected="a store with runs",
        fix="paceline run tour/all-reduce makes one; or name a store that has some: --results=DIR",
    )


def _names(path: Path) -> tuple[str, str]:
    """Return the paths by which a record is known, whichever form it has."""
    return str(packed_form(path)), str(plain_form(path))


RECORD_FOLDERS = "[0-9][0-9][0-9][0-9]/[0-9][0-9]"
"""Year and month: other folders of a store, such as those of jobs, hold no records."""


def sealed_path(root: Path, run: Run) -> Path:
    """Return where a run's sealed record lies."""
    return root / run.started[:4] / run.started[5:7] / f"{run.run_id}{PACKED}"


def partial_path(root: Path, run: Run) -> Path:
    """Return where a run is written while it goes on."""
    return sealed_path(root, run).with_name(f"{run.run_id}{PLAIN}{PARTIAL}")


def record_paths(root: Path, *, partial: bool = False) -> list[Path]:
    """List record files in the order of their run ids; a record in both forms has two.

    What is no plain file, such as a pipe, is listed too: whoever reads it is told so.
    """
    endings = [PLAIN, PACKED, *([PLAIN + PARTIAL] if partial else [])]
    paths = (p for ending in endings for p in root.glob(f"{RECORD_FOLDERS}/*{ending}"))
    return sorted(paths, key=lambda p: (p.name, p))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things stand in a record file."""

    measurements: list[Place] = field(default_factory=list)
    """Of the lines with measurements, in order."""
    members: list[Member] = field(default_factory=list)
    """Of a compressed file."""


def read_placed(path: Path) -> tuple[RunRecord, Places]:
    """Read one record file, and return beside it where its measurements stand.

    Raises:
        UserError: As ``read_record``.
    """
    path = present_form(path)
    digest = hashlib.sha256()
    run: Run | None = None
    measurements: list[Measurement] = []
    events: list[Event] = []
    seen: set[str] = set()
    told: dict[tuple[str, int], str | None] = {}
    places = Places()
    sealed = False
    offset = 0
    lines = RepeatedLines()
    for number, raw in enumerate(lines_of(path, places.members), start=1):
        try:
            line = lines.parse(raw)
        except ValueError as error:
            if path.name.endswith(PARTIAL) and not raw.endswith(b"\n"):
                break
            raise UserError(f"not a legal record line: {said(error)}", where=f"{path}:{number}") from error
        misplaced = _misplaced(line, run, seen, sealed, told)
        if misplaced is not None:
            raise UserError(misplaced, where=f"{path}:{number}")
        if isinstance(line, Measurement):
            seen.add(line.record_id)
            measurements.append(line)
            places.measurements.append((offset, len(raw)))
        elif isinstance(line, Run):
            run = line
        else:
            if line.kind == "seal":
                sealed = line.data.get("sha256") == digest.hexdigest()
                if not sealed:
                    raise UserError("the content does not fit the seal", where=f"{path}:{number}")
            events.append(line)
        digest.update(raw)
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


def _misplaced(
    line: Line, run: Run | None, seen: set[str], sealed: bool, told: dict[tuple[str, int], str | None]
) -> str | None:
    """Say why a legal line must not stand where it does, or None.

    Args:
        line: The line.
        run: The run line before it.
        seen: Ids of the measurements before it.
        sealed: A seal is before it.
        told: What was found of the metrics of measurements before it, by family and object: lines share these.
    """
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
        key = line.family, id(line.metric)
        if key not in told:
            told[key] = mistold(line.family, line.metric)
        return told[key]
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
    with without_collection():
        return _load(roots, partial=partial, read=read)


def _load(roots: Sequence[Path], *, partial: bool, read: Callable[[Path], RunRecord]) -> Loaded:
    loaded = Loaded()
    chosen: dict[str, tuple[Path, RunRecord]] = {}
    for root in roots:
        for path in record_paths(root, partial=partial) if root.is_dir() else [root]:
            try:
                record = read(path)
                if root.is_dir():
                    check_place(root, record)
            except UserError as error:
                loaded.problems.append(Problem(path=str(path), what=error.what))
                continue
            first_root, first = chosen.setdefault(record.run_id, (root, record))
            if first is record or (problem := twins(first, record)) is None:
                continue
            if _listed_at(root, record) < _listed_at(first_root, first, other=root):
                chosen[record.run_id] = root, record
                problem = Problem(
                    path=str(first.path), what=f"holds other lines than {record.path}, {SAME_ID}"
                )
            loaded.problems.append(problem)
    loaded.retracted = _retracted(chosen)
    loaded.records = [record for run_id, (_, record) in chosen.items() if run_id not in loaded.retracted]
    return loaded


SAME_ID = "of the same run id"


def _listed_at(root: Path, record: RunRecord, *, other: Path | None = None) -> float:
    """Return where the manifest lists the very lines of a record; infinity where it does not.

    Args:
        root: The record's store.
        record: The record.
        other: The store of another one: in another store no line is before or behind.
    """
    name = manifest_name(root, record.path) if root.is_dir() else ""
    for number, entry in enumerate(read_manifest(root).lines):
        if entry.path == name and entry.sha256 == record.sha256:
            return number if other in (None, root) else 0
    return math.inf


def _retracted(records: Mapping[str, tuple[Path, RunRecord]]) -> dict[str, str]:
    """Return which of some records others withdraw, with the reasons."""
    found: dict[str, str] = {}
    manifests: dict[Path, Manifest] = {}
    for root, record in records.values():
        for victim, reason in retractions_of(record.events):
            if victim in records:
                if root not in manifests:
                    manifests[root] = read_manifest(root)
                if counts(manifests[root], victim, record):
                    found[victim] = reason
    return found


def retractions_of(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """Yield the runs that events withdraw, with the reasons."""
    for event in events:
        if event.kind == "retract" and "run_id" in event.data:
            yield str(event.data["run_id"]), str(event.data.get("reason") or "no reason given")


def counts(manifest: Manifest, victim: str, correction: RunRecord) -> bool:
    """Say whether a correction in a store is about a run: not where that came into the store after it."""
    return correction.sealed and not manifest.came_after(victim, correction.run_id)


def twins(first: RunRecord, second: RunRecord) -> Problem | None:
    """Say whether two sealed files of one run, such as its plain and its compressed form, hold different lines."""
    if not (first.sealed and second.sealed) or first.sha256 == second.sha256:
        return None
    return Problem(path=str(second.path), what=f"holds other lines than {first.path}, {SAME_ID}")


def check_place(root: Path, record: RunRecord) -> None:
    """Refuse a record in a store whose file is not the one that its run has: run ids are unique over files.

    Raises:
        UserError: Its name or folder is another one, or it bears the name of a sealed record and has no seal.
    """
    path = record.path
    if path.name.endswith(PARTIAL):
        return
    if run_id_of(path) != record.run_id:
        raise UserError(f"the file name does not fit its run id {record.run_id}", where=str(path))
    expected = sealed_path(root, record.run).parent
    if path.parent != expected:
        raise UserError(
            f"run {record.run_id} began at {record.run.started}, and belongs into {expected.relative_to(root)}",
            where=str(path),
        )
    if not record.sealed:
        raise UserError("has no seal", where=str(path))
