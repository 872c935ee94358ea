"""Text of a dataset of the hub, or of a local folder in its formats, as two files of bytes in a cache.

The library ``datasets`` does the reading, in a process of its own: ranks keep to torch and numpy, and a machine that
finds the cache needs neither the library nor a network. ``python -m paceline.families.training.core.hub NAME@REVISION``
fills the cache beforehand: inside a run the first reading has to fit into the protocol's timeout.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.base.account import home_folder

MAX_BYTES = 64 << 20
HELD_OUT_SHARE = 10
"""One row in this many is held out."""
SEPARATOR = b"\n\n"
COLUMN = "text"
TRAIN, HELD_OUT = "train.bin", "held-out.bin"
TIME_LIMIT_S = 3600
MODULE = "paceline.families.training.core.hub"
WITHOUT_TORCH = {"USE_TORCH": "0"}
"""What ``datasets`` reads; without it a process that streams rows imports torch where it is installed, for seconds."""


class HubError(Exception):
    """A dataset that cannot be read, and what to do about it."""


def parts(name: str) -> tuple[str, str]:
    """Split ``NAME@REVISION``; a folder of this machine needs no revision, since its bytes are fingerprinted.

    Raises:
        HubError: A dataset of the hub without a revision: nobody could read the same again.
    """
    if name and Path(name).is_dir():  # the empty path is the working directory
        return name, ""
    dataset, _, revision = name.rpartition("@")
    if not dataset or not revision:
        raise HubError(
            f"'{name}' is no folder here and names no revision; expected hf:NAME@REVISION, REVISION a commit or tag"
        )
    return dataset, revision


def cached(name: str) -> tuple[bytes, bytes]:
    """Return the text to train on and the text held out, from the cache or, the first time, through ``datasets``.

    The cache is ``$PACELINE_DATA`` or ``~/.cache/paceline/data``. Ranks of one machine wait for the first of them.

    Raises:
        HubError: See ``parts``; or the library is missing, or could not read the dataset.
    """
    dataset, revision = parts(name)
    root = _cache_folder()
    folder = root / _key(dataset, revision)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / f"{folder.name}.lock").open("w") as lock:
            # One rank of a machine reads, the others wait and find the cache; the
            # lock goes with the process, even a killed one.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(dataset, revision, folder)
        return (folder / TRAIN).read_bytes(), (folder / HELD_OUT).read_bytes()
    except OSError as error:
        raise HubError(
            f"the cache {root} cannot be used: {error}; set PACELINE_DATA to another folder"
        ) from error


def _cache_folder() -> Path:
    """Return where data are kept.

    Raises:
        HubError: The user has no home folder, and names no other place.
    """
    if named := os.environ.get("PACELINE_DATA"):
        return Path(named)
    home = home_folder()
    if home is None:
        raise HubError("this user has no home folder for the cache of data; set PACELINE_DATA to a folder")
    return home / ".cache" / "paceline" / "data"


def _key(dataset: str, revision: str) -> str:
    """Name a cache entry; of a local folder, by what lies in it now."""
    digest = hashlib.sha256(f"{dataset}@{revision}@{MAX_BYTES}".encode())
    if not revision:
        for path in sorted(p for p in Path(dataset).rglob("*") if p.is_file()):
            # Size and time instead of contents: the key must be cheap, and the
            # corpus is fingerprinted once it has been read.
            facts = path.stat()
            digest.update(f"{path.relative_to(dataset)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _fetch(dataset: str, revision: str, folder: Path) -> None:
    """Let a process of its own write the two files, and put them into their place together."""
    # Beside its place, so that the rename stays on one file system and puts both files there at once.
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".making-"))
    try:
        # A process of its own: the library brings threads and imports into ranks that are about to be timed.
        command = [sys.executable, "-m", MODULE, dataset, revision, str(made)]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
            env={**os.environ, **WITHOUT_TORCH},
        )
        if ended.returncode != 0:
            lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            raise HubError(lines[-1])
        made.rename(folder)
    except subprocess.TimeoutExpired as error:
        raise HubError(f"'{dataset}' was not read within {TIME_LIMIT_S} s") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def texts(dataset: str, revision: str) -> Iterator[str]:
    """Yield the text of every row of a dataset's training split, streamed.

    Raises:
        HubError: The library is missing, it cannot read the dataset, or no column is the text.
    """
    try:
        library: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise HubError("data hf: needs the package datasets: pip install 'paceline[hf]'") from error
    try:
        given = {"revision": revision} if revision else {}
        # Streamed: at most 64 MiB are kept, whatever the size of the dataset.
        rows = library.load_dataset(dataset, split="train", streaming=True, **given)
        for row in rows:
            column = COLUMN if COLUMN in row else _only_text(row, dataset)
            yield str(row[column])
    except HubError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or "no message"
        raise HubError(
            f"'{dataset}' could not be read: {type(error).__name__}: {said}; without a network give a local folder, "
            "hf:FOLDER"
        ) from error


def _only_text(row: dict[str, Any], dataset: str) -> str:
    found = [name for name, value in row.items() if isinstance(value, str)]
    if len(found) != 1:
        raise HubError(f"'{dataset}' has no column '{COLUMN}', and not one column of text but {sorted(row)}")
    return found[0]


def write(dataset: str, revision: str, folder: Path) -> None:
    """Write the text of rows, every tenth held out, until there are 64 MiB.

    Raises:
        HubError: See ``texts``; or there is no row.
    """
    total = 0
    with (folder / TRAIN).open("wb") as train, (folder / HELD_OUT).open("wb") as kept:
        for number, text in enumerate(texts(dataset, revision)):
            data = text.encode() + SEPARATOR
            # By rows, so that no text is on both sides.
            (kept if number % HELD_OUT_SHARE == 0 else train).write(data)
            total += len(data)
            if total >= MAX_BYTES:
                break
    if not total:
        raise HubError(f"'{dataset}' has no rows in its split 'train'")


def main(arguments: list[str]) -> int:
    """Fill the cache, or write a dataset's text; what went wrong is the last line on standard error.

    Args:
        arguments: A name, with or without ``hf:`` before it; or a dataset, a revision and a folder.
    """
    try:
        match arguments:
            case [name]:
                train, kept = cached(name.removeprefix("hf:"))
                print(f"{len(train)} bytes to train, {len(kept)} held out")
            case [dataset, revision, folder]:
                write(dataset, revision, Path(folder))
            case _:
                raise HubError(f"expected one dataset: python -m {MODULE} NAME@REVISION, or a folder")
    except HubError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
