"""Record files: lines of JSON, plain while a run goes on and gzip once it is sealed. All reading of them is here.

    <run_id>.jsonl.gz        sealed: zcat prints its lines
    <run_id>.jsonl           sealed by an earlier version, or unpacked by hand; read as well
    <run_id>.jsonl.partial   a run in progress: plain, so that a kill loses no line that was written

Digests are of the lines and not of the compressed bytes: a record keeps its digest in either form, whatever compressed
it. gzip and not xz: a third more bytes of real records, read twice as fast and written eight times as fast.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EEXIST
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from paceline.base.errors import UserError

PLAIN, PACKED, PARTIAL = ".jsonl", ".jsonl.gz", ".partial"
MAX_LINE_BYTES = 16 << 20
"""A longer line is refused: raw samples of one launch stay far below it."""
MAX_RECORD_BYTES, MAX_RECORD_LINES = 1 << 30, 1_000_000
"""So is a larger content: the largest run of all suites stays far below it, and a decompression bomb does not."""
MEMBER_BYTES = 256 << 10
"""Lines of one gzip member: what is inflated to reach a single line. A file of one member would be 5 % smaller."""

_LEVEL, _GZIP = 9, 31
_READ_BYTES, _CHUNK_BYTES = 64 << 10, 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong with a file of a store; what is right beside it is used."""

    path: str
    """The file, and where it is known the line."""
    what: str


Member = tuple[int, int]
"""Where a gzip member begins: in the content, and in the file."""


def run_id_of(path: Path) -> str:
    """Return the run id that a record file's name holds."""
    name = path.name.removesuffix(PARTIAL)
    return name.removesuffix(PACKED if name.endswith(PACKED) else PLAIN)


def is_packed(path: Path) -> bool:
    """Say whether a file is compressed, by its name."""
    return path.name.endswith(PACKED)


def plain_form(path: Path) -> Path:
    """Return the name of a sealed record's file when it is not compressed."""
    return path.with_name(run_id_of(path) + PLAIN)


def packed_form(path: Path) -> Path:
    """Return the name of a sealed record's file when it is compressed."""
    return path.with_name(run_id_of(path) + PACKED)


def other_form(path: Path) -> Path:
    """Return the name that a sealed record's file has in the other form."""
    return plain_form(path) if is_packed(path) else packed_form(path)


def files_beside(path: Path) -> Path:
    """Return the folder of the files that belong to a record, such as raw logs."""
    return path.with_name(run_id_of(path))


def present_form(path: Path) -> Path:
    """Return the file, or the same record in its other form where only that exists (it was compressed meanwhile)."""
    if path.name.endswith((PLAIN, PACKED)) and not path.exists() and other_form(path).exists():
        return other_form(path)
    return path


def open_plain(path: Path) -> io.FileIO:
    """Open a file to read its bytes.

    Raises:
        UserError: It cannot be opened, or is a pipe, a device or a folder, which could keep its reader waiting.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError("not a plain file", where=str(path))
    return io.FileIO(descriptor, "rb")


def lines_of(path: Path, members: list[Member] | None = None) -> Iterator[bytes]:
    """Read the lines of a record file, with their ends, whether it is compressed or not.

    Args:
        path: The file.
        members: Gets the beginning of each member of a compressed file, once all lines are read.

    Raises:
        UserError: The file cannot be read, is damaged, or is beyond the bounds.
    """
    rest, number, size = b"", 0, 0
    for chunk in _chunks(path, members):
        size += len(chunk)
        if size > MAX_RECORD_BYTES:
            raise UserError(f"the content is larger than {MAX_RECORD_BYTES} bytes", where=str(path))
        *whole, rest = (rest + chunk).split(b"\n")
        if max(map(len, whole), default=0) >= MAX_LINE_BYTES or len(rest) > MAX_LINE_BYTES:
            raise UserError(f"a line is longer than {MAX_LINE_BYTES} bytes", where=str(path))
        number += len(whole)
        if number > MAX_RECORD_LINES:
            raise UserError(f"the file has more than {MAX_RECORD_LINES} lines", where=str(path))
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def holds(path: Path, text: bytes) -> bool:
    """Tell whether a record file holds some bytes; of a damaged file, before the damage."""
    with suppress(UserError):
        end, size = b"", 0
        for chunk in _chunks(path):
            if text in chunk or text in end + chunk[: len(text)]:
                return True
            end = (end + chunk[-len(text) :])[-len(text) :]
            size += len(chunk)
            if size > MAX_RECORD_BYTES:
                break  # nor is what stands behind read as lines
    return False


def content_of(path: Path) -> bytes:
    """Read the lines of a record file at once; raises as ``lines_of``."""
    return b"".join(lines_of(path))


def digest_of(path: Path) -> tuple[str, int]:
    """Return the SHA-256 of a record file's lines, and their bytes; raises as ``lines_of``."""
    digest, size = hashlib.sha256(), 0
    for line in lines_of(path):
        digest.update(line)
        size += len(line)
    return digest.hexdigest(), size


def read_around(
    file: BinaryIO, path: Path, members: Sequence[Member], place: tuple[int, int]
) -> tuple[int, bytes]:
    """Read a piece of the content of an open record file with what has to be read for it.

    Args:
        file: The file.
        path: Its path.
        members: What ``lines_of`` gave.
        place: Where the piece begins in the content, and how many bytes it has.

    Returns:
        Where in the content that begins which was read, and its bytes: most often those of a whole member.

    Raises:
        UserError: The file is damaged there.
    """
    offset, length = place
    if not is_packed(path):
        file.seek(offset)
        return offset, file.read(length)
    members = members or [(0, 0)]
    begin, at = members[bisect_right(members, offset, key=itemgetter(0)) - 1]
    file.seek(at)
    data = bytearray()
    for chunk in _inflated(file, path):
        data += chunk
        if len(data) >= offset - begin + length:
            break
    return begin, bytes(data)


def pack(content: bytes) -> bytes:
    """Compress a record's lines: the same lines give the same bytes, without a time or a name.

    A new member begins with the first line after each ``MEMBER_BYTES``.
    """
    members: list[bytes] = []
    begin = 0
    while begin < len(content) or not members:
        end = content.find(b"\n", begin + MEMBER_BYTES - 1) + 1 or len(content)
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        members.append(compressor.compress(content[begin:end]) + compressor.flush())
        begin = end
    return b"".join(members)


def write_sealed(target: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a compressed record whole or not at all, and to the disk.

    Args:
        target: The file's name in the store, which it gets when all bytes are on the disk.
        content: Its lines.
        replace: Take the place of an existing file.

    Raises:
        OSError: No room, no permission; ``FileExistsError`` when the file exists and must not be replaced.
    """
    temporary = target.with_name(f"{target.name}.{os.getpid()}.copy")
    temporary.unlink(
        missing_ok=True
    )  # of a process that was killed and had this number: it may be the target itself
    try:
        with temporary.open("xb") as file:
            file.write(pack(content))
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(target)
        else:
            os.link(temporary, target)
    except FileNotFoundError as error:  # another process wrote the same record and cleaned up
        raise FileExistsError(EEXIST, os.strerror(EEXIST), str(target)) from error
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
    remove_copies(target)


def remove_copies(target: Path) -> None:
    """Remove what processes that were killed while they wrote a sealed file left beside it."""
    for left in target.parent.glob(f"{target.name}.*.copy"):
        with suppress(OSError):
            left.unlink()


def write_all(descriptor: int, data: bytes) -> None:
    """Write a whole line or nothing: a short write (full disk) is taken back, so that the file stays well-formed."""
    begin = os.fstat(descriptor).st_size
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        os.ftruncate(descriptor, begin)
        raise


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _chunks(path: Path, members: list[Member] | None = None) -> Iterator[bytes]:
    try:
        with open_plain(path) as file:
            if is_packed(path):
                yield from _inflated(file, path, members)
                return
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path)) from error


def _inflated(file: BinaryIO, path: Path, members: list[Member] | None = None) -> Iterator[bytes]:
    """Inflate gzip members from where a file stands to its end, in bounded chunks.

    Args:
        file: The file, open.
        path: For messages.
        members: Gets the beginning of each member.

    Raises:
        UserError: The file ends within a member, its checksum is another one, or what follows is no member.
    """
    size, data = 0, file.read(_READ_BYTES)
    if not data:
        raise damaged(path, "it is empty")
    while data:
        begin = file.tell() - len(data)
        if members is not None:
            members.append((size, begin))
        inflater = zlib.decompressobj(_GZIP)
        while True:
            try:
                chunk = inflater.decompress(data, _CHUNK_BYTES)
            except zlib.error as error:
                raise damaged(path, f"from byte {begin} on: {error}") from error
            size += len(chunk)
            if chunk:
                yield chunk
            if inflater.eof:
                break
            data = inflater.unconsumed_tail
            if not data and len(chunk) < _CHUNK_BYTES:
                data = file.read(_READ_BYTES)
                if not data:
                    raise damaged(path, "it ends too early")
        data = inflater.unused_data or file.read(_READ_BYTES)


def damaged(path: Path, what: str) -> UserError:
    """Return the error of a compressed file that is not as it was written."""
    return UserError(
        f"the compressed file is damaged ({what})",
        where=str(path),
        fix=f"git checkout {path}, or move it away and: paceline store merge COPY, another store with this run",
    )
