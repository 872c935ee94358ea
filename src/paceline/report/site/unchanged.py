"""Whether a site is what a build would make again: all that the build reads is as it was, and so is the site.

A build leaves in its cache a digest of all that it read, and one of each file that it made. The next build takes both
again, and is done where they are the same: no record is read and no page is touched. A file of the site that was
changed, added or removed, by whomever, lets it be built. Records count by their files' sizes, times and numbers, as
for their indexes; everything else by its content.

Nothing is told, and all is built, where inputs may lie where nobody looks here: content of the user's own, techniques
of installed packages, records that cannot be read or that were changed in the last two seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import paceline
from paceline.base.files.stamp import is_settled, stamp_of
from paceline.records.format.record_file import Problem
from paceline.records.origin.ancestry import known_of
from paceline.records.store import proofs
from paceline.records.store.folder import record_paths
from paceline.records.store.manifest import MANIFEST
from paceline.spec import content

LIBRARIES = (
    "paceline",
    "numpy",
    "scipy",
    "jinja2",
    "markupsafe",
    "markdown-it-py",
    "pyarrow",
    "pydantic",
    "pyyaml",
)
"""Those that a site can depend on."""
CONTENT = ("suites", "runners", "baselines", "reports", "docs")
"""What a content root has."""
SETTINGS = "PACELINE_"
"""How the names of environment variables begin that can change what a command does."""
SUFFIX = ".site"
_DIGEST_BYTES = 32


def inputs_digest(
    stores: Sequence[Path], *, calibration: Path, measured: Sequence[Path], facts: Sequence[Any]
) -> str | None:
    """Return a digest of all that a build reads but for the history of commits, or None where it cannot be told.

    Args:
        stores: Folders of records.
        calibration: Folder of calibration figures.
        measured: Files of what measured tests found.
        facts: What else the site depends on, with a complete ``repr``.
    """
    if content.content_roots() != [content.shipped_root()] or content.entry_points():
        return None
    stamps, now_ns = [], time.time_ns()
    for path in (path for store in stores for path in record_paths(store)):
        try:
            stamp = stamp_of(path)
        except OSError:
            return None
        if not is_settled(stamp, now_ns):
            return None
        stamps.append((os.path.realpath(path), stamp))
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith(SETTINGS))
    told = (
        sys.version,
        [version(name) for name in LIBRARIES],
        settings,
        [str(s) for s in stores],
        stamps,
        facts,
    )
    found = hashlib.sha256(repr(told).encode("utf-8", "backslashreplace"))
    for path in _input_files(stores, calibration, measured):
        named = f"{path}\n".encode("utf-8", "surrogateescape")
        found.update(named + (_digest_of(path) or b"none"))
    return found.hexdigest()


def _input_files(stores: Sequence[Path], calibration: Path, measured: Sequence[Path]) -> Iterator[Path]:
    """Yield every file that a build reads as a whole: of code, content, figures, and of stores beside records."""
    shipped = content.shipped_root()
    for root in (Path(paceline.__file__).parent, *(shipped / name for name in CONTENT)):
        yield from (
            shipped_file for shipped_file in _files_in(root) if "__pycache__" not in shipped_file.parts
        )
    yield from sorted(calibration.glob("*.json"))
    yield from measured
    for store in stores:
        yield store / MANIFEST
        yield from sorted((store / proofs.FOLDER).glob("*.json"))


def _files_in(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def _digest_of(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build made."""

    num_files: int
    num_runs: int
    problems: tuple[Problem, ...] = ()
    """What is wrong with record files that are not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildLog:
    """What the last build of a site read and made."""

    folder: Path
    """The cache."""
    target: Path
    """The site's folder."""

    @property
    def path(self) -> Path:
        """Return the log's file: one for each site that has its cache there."""
        name = hashlib.sha256(os.fsencode(os.path.realpath(self.target))).hexdigest()
        return self.folder / f"{name}{SUFFIX}"

    def still(self, inputs: str | None) -> Built | None:
        """Return what the last build made, if it read the same and the site is as it left it.

        Args:
            inputs: What ``inputs_digest`` tells now.
        """
        if inputs is None:
            return None
        try:
            data = self.path.read_bytes()
        except OSError:
            return None
        digest, payload = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest != hashlib.sha256(payload).digest():
            return None
        kept: dict[str, Any] = json.loads(payload)
        if kept["inputs"] != inputs or kept["history"] != _history(kept["commits"]):
            return None
        if kept["files"] != dict(_site_files(self.target)):
            return None
        return Built(num_files=len(kept["files"]), num_runs=kept["runs"])

    def write(self, inputs: str, commits: Iterable[str], files: Mapping[str, str], runs: int) -> None:
        """Keep what a build read and made; a folder that cannot be written costs time, and nothing else.

        Args:
            inputs: What ``inputs_digest`` told.
            commits: Of the runs: what the repository knows of them is an input.
            files: Name of each file → the SHA-256 of what it holds.
            runs: How many runs it shows.
        """
        named = sorted(commits)
        kept = {"inputs": inputs, "commits": named, "history": _history(named), "files": files, "runs": runs}
        payload = json.dumps(kept).encode()
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(payload).digest() + payload)
            temporary.replace(self.path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()


def _history(commits: Sequence[str]) -> str:
    """Return a digest of what the repository knows of some commits."""
    return hashlib.sha256(repr(sorted(known_of(commits).items())).encode()).hexdigest()


def _site_files(target: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file of a site, and the SHA-256 of what it holds."""
    for path in _files_in(target):
        yield path.relative_to(target).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
