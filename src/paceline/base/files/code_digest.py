"""A digest of code: what was made by other code, or other libraries, is made anew."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

SUFFIXES = (".py", ".html")


@cache
def code_digest(roots: tuple[Path, ...], libraries: tuple[str, ...]) -> str:
    """Return a digest of the interpreter, of code and of the versions of libraries.

    Args:
        roots: Folders and files of code and templates.
        libraries: Installed distributions.
    """
    found = hashlib.sha256(repr((sys.version, [version(name) for name in libraries])).encode())
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix in SUFFIXES:
                named = f"{path.relative_to(root.parent)}\n"
                found.update(named.encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
