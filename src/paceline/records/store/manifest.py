"""The manifest of a store: a line for each sealed record, in the order in which they came in.

It is appended to under a lock, and rebuilt by ``paceline store repair`` alone. A line that cannot be read is one
problem and hides no other. The order says what a correction can be about: runs that were there before it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from paceline.base.errors import UserError
from paceline.records.format.limits import decoded, said
from paceline.records.format.record_file import (
    MAX_RECORD_BYTES,
    Problem,
    digest_of,
    lines_of,
    plain_form,
    run_id_of,
    sync_folder,
    write_all,
)

MANIFEST = "MANIFEST.jsonl"


class Entry(BaseModel):
    """A line of the manifest. Digest and size are those of the record's lines, in whichever form its file has them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    path: str = Field(pattern=r"^[0-9]{4}/[0-9]{2}/[^/\u0000-\u001f]{1,200}\.jsonl$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0, le=MAX_RECORD_BYTES)


@dataclass(slots=True, kw_only=True)
class Manifest:
    """What the legal lines of a manifest say, and which lines are none."""

    lines: list[Entry] = field(default_factory=list)
    """In order; a path twice where a record was merged again, or somebody wrote another line."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By path the last line: a run whose sealing was killed is sealed again, with another time in its seal."""
    illegal: list[Problem] = field(default_factory=list)
    """Lines that are none."""
    position: dict[str, int] = field(default_factory=dict)
    """By run id the number of its first line among the legal ones."""

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the manifest itself."""
        return list(self.illegal)

    def add(self, entry: Entry) -> None:
        """Take a line."""
        self.position.setdefault(run_id_of(Path(entry.path)), len(self.lines))
        self.lines.append(entry)
        self.entries[entry.path] = entry

    def came_after(self, run_id: str, other: str) -> bool:
        """Say whether a run came into the store after another one did; no, where a line of either is missing."""
        first, second = self.position.get(run_id), self.position.get(other)
        return first is not None and second is not None and first > second


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of a store; a store without one has no lines."""
    path = root / MANIFEST
    found = Manifest()
    if not os.path.lexists(path):
        return found
    try:
        for number, raw in enumerate(lines_of(path), start=1):
            where = f"{MANIFEST}:{number}"
            try:
                entry = Entry.model_validate(decoded(raw))
            except ValueError as error:
                torn = "" if raw.endswith(b"\n") else "torn: "
                found.illegal.append(
                    Problem(path=where, what=f"not a legal line of a manifest: {torn}{said(error)}")
                )
                continue
            found.add(entry)
    except UserError as error:
        found.illegal.append(Problem(path=MANIFEST, what=error.what))
    return found


def entry_of(root: Path, path: Path) -> Entry:
    """Return the line of a sealed record; raises as ``lines_of``."""
    sha256, size = digest_of(path)
    return Entry(path=manifest_name(root, path), sha256=sha256, size_bytes=size)


def manifest_name(root: Path, path: Path) -> str:
    """Return the name of a record in the manifest, whichever form its file has."""
    return str(plain_form(path).relative_to(root))


def add_to_manifest(root: Path, path: Path, *, once: bool = False) -> None:
    """Append the line of a sealed record, under a lock that other runs respect.

    Args:
        root: The store.
        path: The record.
        once: Only where the manifest has no line of it: an earlier attempt may have come that far.
    """
    entry = entry_of(root, path)
    with locked(root) as descriptor:
        if once and entry.path in read_manifest(root).entries:
            return
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        write_all(descriptor, (b"\n" if torn else b"") + _text(entry))
        os.fsync(descriptor)


def replace_manifest(root: Path, lines: Iterable[Entry]) -> None:
    """Write another manifest in the place of the one that the caller has locked: whole, or not at all."""
    temporary = root / f"{MANIFEST}.{os.getpid()}.new"
    try:
        with temporary.open("wb") as file:
            file.writelines(map(_text, lines))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(root / MANIFEST)
    finally:
        with suppress(OSError):
            temporary.unlink()
    sync_folder(root)


def _text(entry: Entry) -> bytes:
    return entry.model_dump_json().encode() + b"\n"


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """Hold the manifest of a store open and locked; others that append or rebuild it wait.

    Raises:
        OSError: It cannot be opened.
        UserError: It is a pipe or a device.
    """
    path = root / MANIFEST
    while True:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserError("not a plain file", where=str(path))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_still(descriptor: int, path: Path) -> bool:
    """Say whether an open file is yet the one of this name: it may have been rebuilt while we waited for the lock."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
