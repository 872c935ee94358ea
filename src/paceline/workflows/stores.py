"""Which stores of records are in use: the one that is written to, and the published runs beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from paceline.base.errors import UserError
from paceline.records.record_file import run_id_of
from paceline.records.store import Loaded, RunRecord, load, read_record, record_paths
from paceline.spec import content

RESULTS_VARIABLE = "PACELINE_RESULTS"
LATEST = "latest"
"""Names the newest run."""


def default_results() -> Path:
    """Return the store to write to: ``PACELINE_RESULTS``, else ``results/local`` of the checkout or this folder."""
    given = os.environ.get(RESULTS_VARIABLE)
    if given:
        return Path(given)
    root = content.checkout_root() or Path.cwd()
    return root / "results" / "local"


def published_results() -> Path | None:
    """Return the checkout's tracked reference runs, if there are any."""
    root = content.checkout_root()
    folder = root / "results" / "published" if root else None
    return folder if folder is not None and folder.is_dir() else None


def stores(results: Path | None, *, new: bool = False, published: bool | None = None) -> list[Path]:
    """Return the store in use, and the checkout's published runs beside it.

    Args:
        results: The store; None means the one in use.
        new: It need not exist yet.
        published: Whether the published runs, which are of other machines, belong to what is asked for; None where a
            run is meant by its id: then they do, unless a store is named.

    Raises:
        UserError: The store was named, does not exist, and is not ``new`` either.
    """
    if results is not None and not new and not results.is_dir():
        raise UserError(
            "no such store", where=str(results), expected="a folder of records", fix="--results=DIR"
        )
    roots = [results or default_results()]
    tracked = published_results()
    if tracked is not None and (results is None if published is None else published):
        roots.append(tracked)
    return [r for r in roots if r.is_dir()]


def load_stores(
    results: Path | None,
    read: Callable[[Path], RunRecord] = read_record,
    *,
    new: bool = False,
    published: bool | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Loaded:
    """Read all records of ``stores``; whoever needs one of them asks ``lookup.find_run``.

    Args:
        results: The store; None means the one in use and the published runs beside it.
        read: Gives the record of a file.
        new: The store need not exist yet.
        published: Whether the published runs belong to it, as for ``stores``.
        say: Told of each file that is left out, and why; what a reader shows itself is in ``Loaded.problems``.
    """
    loaded = load(stores(results, new=new, published=published), read=read)
    for problem in loaded.problems:
        say(f"left out: {problem.path}: {problem.what}")
    return loaded


def stores_of(results: Path | None, name: str) -> list[Path]:
    """Return the stores in which a run is looked for: ``latest`` is one's own, an id may be a published one's."""
    return stores(results, published=False if name == LATEST else None)


def published_ids() -> frozenset[str]:
    """Return the ids of the published runs."""
    tracked = published_results()
    return frozenset(map(run_id_of, record_paths(tracked))) if tracked is not None else frozenset()
