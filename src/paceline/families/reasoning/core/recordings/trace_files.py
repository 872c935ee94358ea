"""All traces of a block in one file: what each was drawn by, its tokens, their probabilities, when they came.

NumPy's own container without pickles, so that a machine with torch and numpy alone writes and reads it. Ragged columns
are two arrays, the values and where each row ends. Beside them a header in JSON: whose traces these are, on which
questions, and what a vote would need.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.reasoning.core.recordings.archive import Archive, Line, Name

FORMAT = 1
ENDING = ".npz"
MODEL, PARTNER = "model", "partner"
MAX_VALUES = 20_000_000
"""Tokens of one file, those before decoded ones included; a block that has more keeps none, and says so."""
NEEDED = ("format", "launch", "params", "seeds", "models", "identities", "questions", "answers", "right")
"""What a header must hold."""
Columns = dict[str, NDArray[Any]]
_UNREADABLE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """What a file holds."""

    path: Path
    sha256: str
    header: Mapping[str, Any]
    archives: Mapping[str, Archive]
    """By role: the model's, and its partner's where there was one."""


def num_values(archive: Archive) -> int:
    """Return how many tokens a file of an archive would hold."""
    lines = sum(len(before) + len(line.tokens) for (before, _, _), line in archive.lines.items())
    return lines + sum(len(before) + len(step) for before, step in archive.scores)


def save(path: Path, header: Mapping[str, Any], archives: Mapping[str, Archive]) -> str:
    """Write a file whole or not at all, and return its SHA-256; an older one of its name is replaced."""
    columns: Columns = {}
    for role, archive in archives.items():
        columns |= {f"{role}.{name}": values for name, values in _columns(archive).items()}
    text = json.dumps(
        {**header, "format": FORMAT, "identities": {r: a.identity for r, a in archives.items()}}
    )
    columns["header"] = np.frombuffer(text.encode(), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, where replacing is atomic: a reader sees a whole file or the old one.
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **columns)
    digest = _digest(temporary)
    temporary.replace(path)
    return digest


def read_header(path: Path) -> dict[str, Any]:
    """Read what a file says of itself, and none of its traces.

    Raises:
        UserError: It is none, or of another format.
    """
    with _readable(path), np.load(path, allow_pickle=False) as data:
        return _header(data)


def read(path: Path) -> TraceFile:
    """Read a file.

    Raises:
        UserError: It is none, or of another format.
    """
    with _readable(path):
        digest = _digest(path)
        with np.load(path, allow_pickle=False) as data:
            header = _header(data)
            columns: Columns = {name: data[name] for name in data.files}
        archives = {
            role: _archive(identity, {k.removeprefix(f"{role}."): v for k, v in columns.items()})
            for role, identity in header["identities"].items()
        }
    return TraceFile(path=path, sha256=digest, header=header, archives=archives)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise UserError(
            f"it cannot be read as recorded traces: {type(error).__name__}: {error}",
            where=str(path),
            expected="a file that 'paceline run' has kept beside a record of the reasoning family",
        ) from error


def _header(data: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    header = json.loads(data["header"].tobytes())
    missing = [name for name in NEEDED if name not in header]
    if missing or header["format"] != FORMAT:
        raise ValueError(f"its header is not of format {FORMAT}, or lacks {', '.join(missing) or 'nothing'}")
    return dict(header)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _columns(archive: Archive) -> Columns:
    names, lines = list(archive.lines), list(archive.lines.values())
    return {
        **_ragged("before", [before for before, _, _ in names], np.int32),
        **_ragged("key", [key for _, key, _ in names], np.int64),
        "temperature": np.array([temperature for _, _, temperature in names], dtype=np.float64),
        **_ragged("tokens", [line.tokens for line in lines], np.int32),
        "logprobs": _floats(value for line in lines for value in line.logprobs),
        "entropies": _floats(value for line in lines for value in line.entropies),
        "ended": np.array([line.ended for line in lines], dtype=np.bool_),
        "begun_s": np.array([line.begun_s for line in lines], dtype=np.float64),
        "latest_s": np.array([line.latest_s for line in lines], dtype=np.float64),
        **_ragged("scored_before", [before for before, _ in archive.scores], np.int32),
        **_ragged("scored", [step for _, step in archive.scores], np.int32),
        "scores": _floats(value for values in archive.scores.values() for value in values),
    }


def _archive(identity: str, columns: Columns) -> Archive:
    """Make an archive of its columns.

    Raises:
        KeyError, ValueError: They do not belong together.
    """
    archive = Archive(str(identity))
    tokens = _rows(columns, "tokens")
    logprobs, entropies = (_rows(columns, name, like="tokens") for name in ("logprobs", "entropies"))
    single = zip(
        *(columns[name].tolist() for name in ("temperature", "ended", "begun_s", "latest_s")), strict=True
    )
    for before, key, decoded, own, spread, (temperature, ended, begun_s, latest_s) in zip(
        _rows(columns, "before"), _rows(columns, "key"), tokens, logprobs, entropies, single, strict=True
    ):
        name: Name = (tuple(before), tuple(key), temperature)
        archive.lines[name] = Line(decoded, own, spread, ended, begun_s, latest_s)
    for before, step, values in zip(
        _rows(columns, "scored_before"),
        _rows(columns, "scored"),
        _rows(columns, "scores", like="scored"),
        strict=True,
    ):
        archive.scores[tuple(before), tuple(step)] = values
    return archive


def _ragged(name: str, rows: Sequence[Sequence[int]], dtype: type[np.generic]) -> Columns:
    flat = np.fromiter((value for row in rows for value in row), dtype=dtype)
    return {name: flat, f"{name}.ends": np.cumsum([len(row) for row in rows], dtype=np.int64)}


def _rows(columns: Columns, name: str, *, like: str | None = None) -> list[list[Any]]:
    """Return a ragged column's rows; ``like`` names the column that says where they end."""
    values, ends = columns[name].tolist(), columns[f"{like or name}.ends"].tolist()
    # Checked before it is cut: a damaged file must be refused, and not read as shorter rows.
    begins = [0, *ends][: len(ends)]
    if (ends[-1] if ends else 0) != len(values) or any(b > e for b, e in zip(begins, ends, strict=True)):
        raise ValueError(f"column '{name}' has {number_of(len(values), 'value')}, and its rows end elsewhere")
    return [values[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _floats(values: Iterator[float]) -> NDArray[np.floating[Any]]:
    """Return values in half the room where that loses nothing, as with those of a network in float32."""
    exact = np.fromiter(values, dtype=np.float64)
    # Only if every value comes back equal: a replay has to give what was recorded.
    short = exact.astype(np.float32)
    return short if np.array_equal(short.astype(np.float64), exact) else exact
