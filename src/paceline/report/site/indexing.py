"""Indexes of records made in several processes, before and beside the pages of a site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from paceline.base.collection import without_collection
from paceline.base.errors import UserError
from paceline.records.store.index import RecordIndex
from paceline.report.site.forks import Files, Job, at_work


def make_indexes(index: RecordIndex, paths: Sequence[Path], processes: int) -> Iterator[str]:
    """Read files and keep their indexes, in several processes; yield each path when that is done.

    What cannot be read has no index afterwards: ``RecordIndex.read`` says why.
    """
    with at_work([partial(_made, index, path) for path in paths], processes) as made:
        for path, _ in made:
            yield path


def writing_jobs(index: RecordIndex) -> list[Job]:
    """Return what is left to do for the next build as jobs that make no files of a site."""
    return [partial(_write, write) for write in index.unwritten]


def _write(write: Callable[[], None]) -> Files:
    write()
    return []


def _made(index: RecordIndex, path: Path) -> Files:
    """Let the index of a file be there for the next who asks."""
    with without_collection():
        _make(replace(index, unwritten=[]), path)  # what it has read is gone before the collector looks again
    return [(str(path), "")]


def _make(one: RecordIndex, path: Path) -> None:
    with suppress(UserError):
        one.read(path)
    one.write()
