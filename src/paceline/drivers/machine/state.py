"""Where a host keeps what all its users must agree on: the lease and the quarantine."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from paceline.base.errors import InfrastructureError, UserError

STATE_VARIABLE = "PACELINE_STATE"
DEFAULT_FOLDER = Path("/var/tmp/paceline")
"""Outlives a restart, and every user may write it, like the folder that it lies in."""


def state_folder() -> Path:
    """Return the host's state folder, which exists from now on: ``PACELINE_STATE``, else one of all users.

    Raises:
        UserError: It cannot be made, or is not a folder.
    """
    folder = Path(os.environ.get(STATE_VARIABLE) or DEFAULT_FOLDER)
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o1777)
    except OSError as error:
        raise UserError(
            f"the host's state folder cannot be made: {error.strerror}",
            where=str(folder),
            fix=f"export {STATE_VARIABLE}=DIR, a folder that every user of this host can write",
        ) from error
    return folder


def open_shared(path: Path) -> int:
    """Open a file that every user may read and write, and no link that somebody left in its place.

    Raises:
        InfrastructureError: It cannot be opened.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            # Creating is asked for only where there is nothing: kernels refuse it for another user's file in a
            # folder that everybody may write.
            return os.open(path, flags)
        except FileNotFoundError:
            descriptor = os.open(path, flags | os.O_CREAT, 0o666)
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, 0o666)
    except OSError as error:
        raise InfrastructureError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InfrastructureError(f"{path}: not a plain file")
    return descriptor


def write_whole(path: Path, text: str) -> None:
    """Replace a file at once, so that a reader never sees half of it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).chmod(0o666)
    Path(name).replace(path)
