"""Which stores of records are in use: the one that is written to, and the published runs beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from paceline.base.account import home_folder
from paceline.base.collection import without_collection
from paceline.base.errors import UserError
from paceline.records.format.record_file import run_id_of
from paceline.records.store.folder import Loaded, RunRecord, load, read_record, record_paths
from paceline.records.store.index import RecordIndex
from paceline.spec import content

RESULTS_VARIABLE = "PACELINE_RESULTS"
CACHE_VARIABLE = "PACELINE_RECORD_CACHE"
SMALLEST_KEPT, LARGEST_CACHE = 16 << 10, 512 << 20
"""Bytes of a record file that is worth an index, and of all indexes in the user's cache."""
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


def load_kept(
    results: Path | None,
    *,
    published: bool | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Loaded:
    """Read all records of ``stores`` to show them: of files that were read before, from the user's cache.

    Args:
        results: As for ``load_stores``.
        published: As for ``load_stores``.
        say: As for ``load_stores``.
    """
    index = user_index()
    with without_collection(staying=True):
        if index is None:
            return load_stores(results, published=published, say=say)
        loaded = load_stores(results, index.read, published=published, say=say)
        if index.unwritten:
            index.write()
            index.prune_to(LARGEST_CACHE)
    return loaded


def user_index() -> RecordIndex | None:
    """Return the indexes in ``PACELINE_RECORD_CACHE``, else in the user's cache folder.

    None where the variable is empty, the user has no home folder, or somebody else may write there.
    """
    home = home_folder()
    given = os.environ.get(CACHE_VARIABLE, str(home / ".cache" / "paceline" / "records") if home else "")
    if not given:
        return None
    folder = Path(given)
    try:
        status = folder.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
    except FileNotFoundError:
        pass  # it is made when there is something to keep
    except OSError:
        return None
    return RecordIndex(folder=folder, smallest=SMALLEST_KEPT, mode=0o700)


def stores_of(results: Path | None, name: str) -> list[Path]:
    """Return the stores in which a run is looked for: ``latest`` is one's own, an id may be a published one's."""
    return stores(results, published=False if name == LATEST else None)


def published_ids() -> frozenset[str]:
    """Return the ids of the published runs."""
    tracked = published_results()
    return frozenset(map(run_id_of, record_paths(tracked))) if tracked is not None else frozenset()
