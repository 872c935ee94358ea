"""Folders that are written: is there room, and what a failure means to a person."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.base.errors import InfrastructureError, UserError
from paceline.records.identity import new_run_id

ROOM_BYTES = 1 << 20
"""Room that a store must have to go on: lines of results, and traces of ranks."""


def resume_command(run_id: str, root: Path) -> str:
    """Return the command that finishes a run, which works when it is pasted in any folder and any shell.

    Runner, suites and options lie in the run's job folder; only the store must be named, since neither the folder nor
    the environment that it came from need be the same again.

    Args:
        run_id: The run.
        root: Its store.
    """
    return f"paceline run --resume {run_id} --results {shlex.quote(str(root.resolve()))}"


@contextmanager
def storage_errors(
    path: Path,
    *,
    run_id: str | None = None,
    root: Path | None = None,
    folder: str = "the results folder",
    option: str = "--results=DIR",
) -> Iterator[None]:
    """Turn failures of a folder that is written into errors that say what to do.

    Args:
        path: What is written.
        run_id: The run that can go on when there is room, if there is one.
        root: Its store.
        folder: What a person calls the folder.
        option: How another one is given.
    """
    try:
        yield
    except BlockingIOError as error:
        raise UserError("another process is writing this run", where=str(path)) from error
    except PermissionError as error:
        raise UserError(
            f"{folder} cannot be written",
            where=str(path),
            expected="a writable folder",
            fix=f"chmod u+w {path.parent}, or {option}",
        ) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise _in_the_way(path, error, run_id=run_id, folder=folder, option=option) from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise UserError(
                f"{folder} lies on a read-only file system",
                where=str(path),
                fix=option,
            ) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            said, again = "the disk is full", "the same command again, or give another folder"
            if run_id is not None and root is not None:
                said, again = f"{said}; everything measured so far is kept", resume_command(run_id, root)
            raise InfrastructureError(f"{path}: {said}.\n  fix: free some space, then: {again}") from error
        raise InfrastructureError(f"{path}: {error.strerror or error}") from error


def _in_the_way(
    path: Path, error: OSError, *, run_id: str | None, folder: str, option: str
) -> UserError | InfrastructureError:
    """Say what is there already: a record, or something that is no folder above it."""
    above = next((p for p in path.parents if os.path.lexists(p)), None)
    if above is not None and not above.is_dir():
        return UserError(
            f"{above} is no folder, and {folder} has to be one",
            where=str(path),
            expected="a folder; it is made where there is none",
            fix=option,
        )
    if run_id is not None and isinstance(error, FileExistsError):
        return UserError("this run was already recorded; records are never overwritten", where=str(path))
    if isinstance(error, FileExistsError):
        what = f"{error.filename or path} is in the way: a file where a folder belongs, or the reverse"
        return UserError(what, where=str(path), fix=f"move it away, or {option}")
    return InfrastructureError(f"{path}: {error.strerror or error}")


def check_writable(root: Path, *, run_id: str | None = None) -> None:
    """Make sure that a run can be recorded: before anything is measured, and when something failed.

    Args:
        root: The store.
        run_id: The run that goes on, if there is one.
    """
    with storage_errors(root / (run_id or "probe"), run_id=run_id, root=root):
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".probe-{new_run_id()}"
        try:
            probe.write_bytes(b"p" * ROOM_BYTES)
        finally:
            probe.unlink(missing_ok=True)
