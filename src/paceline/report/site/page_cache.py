"""Pages that an earlier build made from the same inputs, so that one more night does not draw all boards again.

An entry's name is a digest of everything that its pages are made of: the records by the digests of their files, what
was concluded from others (verdicts, grades, claims, links), the code and the templates. It holds a digest of itself
and its name: one that was damaged, cut short or put in another's place is made anew. Entries that a build did not ask
for are removed at its end. Who can write the folder could as well write the site: against them nothing here helps.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import paceline
from paceline.base.files import code_digest as base_digest
from paceline.report.site.forks import Files, Job
from paceline.spec import content

LIBRARIES = ("numpy", "scipy", "jinja2", "markupsafe", "markdown-it-py", "pyarrow", "pydantic")
"""Those that a page's text can depend on."""
SUFFIX = ".pages"
BINARY = ".parquet"
"""How names of files end that are no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCache:
    """A folder of pages by the digest of what they are made of."""

    folder: Path
    wanted: set[str] = field(default_factory=set)
    """Names that this build asked for."""

    def wrap(self, inputs: Sequence[Any], paths: Sequence[str], job: Job) -> Job:
        """Return a job that takes its files from here if they are, else makes and keeps them.

        Args:
            inputs: All that the files are made of, as plain data or what has a complete ``repr``.
            paths: Names of the files that the job makes, in order.
            job: Makes them.
        """
        key = hashlib.sha256(repr((code_digest(), *inputs)).encode("utf-8", "backslashreplace")).hexdigest()
        self.wanted.add(key)

        def made() -> Files:
            found = self._read(key, paths)
            if found is None:
                found = job()
                assert [path for path, _ in found] == list(paths), paths
                self._write(key, found)
            return found

        return made

    def prune(self) -> None:
        """Remove what this build did not ask for."""
        for path in self.folder.glob(f"*{SUFFIX}*"):
            if path.name.removesuffix(SUFFIX) not in self.wanted:
                with suppress(OSError):  # it costs room, and nothing else
                    path.unlink()

    def _read(self, key: str, paths: Sequence[str]) -> Files | None:
        try:
            data = (self.folder / f"{key}{SUFFIX}").read_bytes()
        except OSError:
            return None
        digest, payload = data[:32], data[32:]
        if digest != _digest(key, payload):
            return None
        head, _, texts = zlib.decompress(payload).partition(b"\n")
        sizes = [int(size) for size in head.split()]
        if len(sizes) != len(paths):
            return None
        ends = list(accumulate(sizes, initial=0))
        parts = [texts[a:b] for a, b in pairwise(ends)]
        return [
            (path, part if path.endswith(BINARY) else part.decode())
            for path, part in zip(paths, parts, strict=True)
        ]

    def _write(self, key: str, files: Files) -> None:
        """Keep an entry whole or not at all; a folder that cannot be written costs time, and nothing else."""
        texts = [t.encode("utf-8", "backslashreplace") if isinstance(t, str) else t for _, t in files]
        head = " ".join(str(len(text)) for text in texts)
        payload = zlib.compress(b"".join([head.encode(), b"\n", *texts]), 1)
        target = self.folder / f"{key}{SUFFIX}"
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_digest(key, payload) + payload)
            temporary.replace(target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()


def _digest(key: str, payload: bytes) -> bytes:
    return hashlib.sha256(key.encode() + payload).digest()


def code_digest() -> str:
    """Return a digest of this package's code, the templates, the interpreter and the libraries of pages."""
    roots = Path(paceline.__file__).parent, content.report_templates()
    return base_digest.code_digest(roots, LIBRARIES)
