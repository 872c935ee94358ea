"""Where a site goes: a folder that holds an earlier site or nothing, changed at once or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from paceline.base.errors import UserError
from paceline.records.store.storage import storage_errors

MARKER = ".paceline-site"
"""The file by which a folder is known as a site, which the next one may replace."""


def write_site(files: Iterator[tuple[str, str | bytes]], target: Path) -> dict[str, str]:
    """Write a site beside its place, then put it there; an earlier site goes.

    Returns:
        The name of each file, and the SHA-256 of what it holds.

    Raises:
        UserError: The folder holds something that is not a site, or cannot be written.
        InfrastructureError: It has no room; an earlier site stays.
    """
    with storage_errors(target, folder="the site's folder", option="--output=DIR"):
        return _write(files, target)


def _write(files: Iterator[tuple[str, str | bytes]], target: Path) -> dict[str, str]:
    if target.exists() and not (target / MARKER).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(
            "the output folder holds something that is not a site",
            where=str(target),
            expected=f"an empty or new folder, or an earlier site (with {MARKER})",
            fix="--output=DIR",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        made = {}
        for name, text in files:
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # A file's name that is no text may be in it: what cannot be read is named.
            data = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
            path.write_bytes(data)
            made[name] = sha256(data).hexdigest()
        fresh.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return made
