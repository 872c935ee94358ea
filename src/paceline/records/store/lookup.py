"""One run of some stores by its name, read alone: a store may hold gigabytes, and one record of it is wanted.

File names hold the ids of runs. Of files whose name does not fit, single lines are read: the first, and those that can
be a retraction or the wanted measurement. The answer is the one that ``store.load`` and ``Loaded.find`` give.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.files.stamp import SETTLED_NS
from paceline.records.format.record import Event, Measurement, Run, parse_line
from paceline.records.format.record_file import holds, lines_of, run_id_of
from paceline.records.store.folder import (
    RunRecord,
    check_place,
    counts,
    no_such_run,
    read_record,
    record_paths,
    retractions_of,
)
from paceline.records.store.manifest import Manifest, read_manifest

Read = Callable[[Path], RunRecord]
RUN_HEAD = re.compile(
    rb'\{"line":"run","format":\d+,"run_id":"([0-9a-z-]+)","started":"[^"\\]+","reason":"([a-z]+)"'
)
NUM_SUGGESTED = 8
"""Names of runs that an error lists: the newest."""


def find_run(roots: Sequence[Path], name: str, *, read: Read = read_record) -> RunRecord:
    """Return a run by id, unique prefix of an id, ``latest``, or file path.

    Args:
        roots: Stores; a run that is in several counts once.
        name: What a person wrote.
        read: Gives the record of a file, or raises ``UserError``.

    Raises:
        UserError: No such run, several, a retracted one, or its file cannot be read.
    """
    (found,) = find_runs(roots, [name], read=read)
    return found


def find_runs(
    roots: Sequence[Path],
    names: Iterable[str],
    *,
    read: Read = read_record,
    withdrawn: dict[str, str] | None = None,
) -> list[RunRecord]:
    """Return several runs as ``find_run`` does.

    Args:
        roots: Stores.
        names: What a person wrote.
        read: Gives the record of a file.
        withdrawn: Runs that are taken back, with the reasons; None to look for them once, in all files of the stores.
    """
    if not (wanted := list(names)):
        return []
    paths = _files(roots)
    withdrawn = retractions(roots) if withdrawn is None else withdrawn
    return [_found(paths, withdrawn, roots, name, read) for name in wanted]


def _found(
    paths: dict[str, Path], withdrawn: dict[str, str], roots: Sequence[Path], name: str, read: Read
) -> RunRecord:
    found = list(_newest(reversed(paths.values()), withdrawn)) if name == "latest" else _named(paths, name)
    if len(found) > 1:
        found = [p for p in found if _first(p) not in withdrawn] or found
    if len(found) > 1:
        raise UserError(
            f"'{name}' fits {number_of(len(found), 'run')}", expected="more characters of the run id"
        )
    if not found and _is_record(path := Path(name)):
        # of another store than was named: what that store withdraws is withdrawn here, too
        return find_run([path.resolve().parents[2]], run_id_of(path), read=read)
    if not found:
        ids = [run_id for path in reversed(paths.values()) if (run_id := _measured_run(path))]
        raise no_such_run(name, ids[:NUM_SUGGESTED])
    return _unless_retracted(_in_place(read(found[0]), roots), withdrawn)


def _is_record(path: Path) -> bool:
    """Tell whether a name is the path of a record where a store keeps it: ``STORE/YEAR/MONTH/RUN.jsonl.gz``."""
    try:
        place = path.resolve()
        return place.is_file() and place in record_paths(place.parents[2])
    except (OSError, IndexError):
        return False


def find_measurement(
    roots: Sequence[Path], name: str, *, read: Read = read_record
) -> tuple[RunRecord, Measurement] | None:
    """Return the measurement of an id with its run, or None where no run has it.

    Raises:
        UserError: Its run was retracted, or the file cannot be read.
    """
    paths = _files(roots)
    if name == "latest" or _named(paths, name):
        return None
    quoted = json.dumps(name, ensure_ascii=False).encode()
    wanted = re.compile(rb'"record_id"\s*:\s*' + re.escape(quoted))
    for path in paths.values():
        if not any(map(wanted.search, lines_with(path, quoted))):
            continue
        record = _in_place(read(path), roots)
        for m in record.measurements:
            if m.record_id == name:
                return _unless_retracted(record, retractions(roots)), m
    return None


def retractions(roots: Iterable[Path]) -> dict[str, str]:
    """Return the runs that corrections of some stores withdraw, with the reasons.

    Only files with a line that can be a retraction are read; one that does not hold withdraws nothing.
    """
    found: dict[str, str] = {}
    for root in roots:
        manifest: Manifest | None = None
        for path in record_paths(root) if root.is_dir() else [root]:
            if not _may_retract(path):
                continue
            with suppress(UserError):
                record = read_record(path)
                if root.is_dir():
                    check_place(root, record)
                manifest = manifest or read_manifest(root)
                for victim, reason in retractions_of(record.events):
                    if counts(manifest, victim, record):
                        found[victim] = reason
    return found


def _may_retract(path: Path) -> bool:
    """Tell whether a file has a line that can be a retraction; a process looks once into one that stands."""
    try:
        status = path.stat()
    except OSError:
        return False
    if time.time_ns() - status.st_mtime_ns < SETTLED_NS:
        return _has_retraction(path)
    return _remembered(path, (status.st_ino, status.st_size, status.st_mtime_ns))


@lru_cache(maxsize=4096)
def _remembered(path: Path, stamp: tuple[int, int, int]) -> bool:
    return _has_retraction(path)


def _has_retraction(path: Path) -> bool:
    return any(map(_can_retract, lines_with(path, b'"retract"')))


def _can_retract(raw: bytes) -> bool:
    with suppress(ValueError):
        line = parse_line(raw)
        return isinstance(line, Event) and line.kind == "retract"
    return False


def _in_place(record: RunRecord, roots: Iterable[Path]) -> RunRecord:
    """Return a record whose file is the one that its run has in its store; raises ``UserError``."""
    for root in roots:
        if root.is_dir() and record.path.is_relative_to(root):
            check_place(root, record)
    return record


def lines_with(path: Path, text: bytes) -> Iterator[bytes]:
    """Yield the lines of a record file that contain some bytes; a file that cannot be read has none."""
    if holds(path, text):  # most files do not, and are not cut into lines
        with suppress(UserError):  # of a damaged file, what stands before the damage
            yield from (raw for raw in lines_of(path) if text in raw)


def _files(roots: Sequence[Path]) -> dict[str, Path]:
    """Return every record file by the name that it bears; of one name, that of the first root."""
    found: dict[str, Path] = {}
    for root in roots:
        for path in record_paths(root) if root.is_dir() else [root] if root.is_file() else ():
            found.setdefault(run_id_of(path), path)
    return dict(sorted(found.items()))


def _named(paths: dict[str, Path], name: str) -> list[Path]:
    here = os.path.realpath(name)  # a link that leads to itself is one that cannot be read, and no end
    found = [
        p
        for stem, p in paths.items()
        if stem.startswith(name) or str(p) == name or os.path.realpath(p) == here
    ]
    return found or [p for p in paths.values() if (_first(p) or "").startswith(name)]


def _newest(paths: Iterable[Path], retracted: dict[str, str]) -> Iterator[Path]:
    """Yield the first run that measured something and stands."""
    for path in paths:
        run_id = _measured_run(path)
        if run_id == run_id_of(path) and run_id not in retracted:
            yield path
            return


def _first(path: Path) -> str | None:
    """Return the id of the run in a file, or None where it begins with no run line."""
    return _head(path)[0]


def _measured_run(path: Path) -> str | None:
    """Return the id of the run in a file, or None for corrections."""
    run_id, reason = _head(path)
    return None if reason == "correction" else run_id


def _head(path: Path) -> tuple[str | None, str | None]:
    """Return id and reason of the run in a file. A run line may have megabytes; ours begin with what is asked for."""
    with suppress(UserError, ValueError):
        first = next(lines_of(path), b"")
        told = RUN_HEAD.match(first)
        if told is not None:
            return told[1].decode(), told[2].decode()
        line = parse_line(first)
        return (line.run_id, line.reason) if isinstance(line, Run) else (None, None)
    return None, None


def _unless_retracted(record: RunRecord, withdrawn: dict[str, str]) -> RunRecord:
    reason = withdrawn.get(record.run_id)
    if reason is not None:
        raise UserError(
            f"run {record.run_id} was retracted: {reason}", where=str(record.path), fix="paceline store ls"
        )
    return record
