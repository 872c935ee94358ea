"""Who runs this: containers give processes user ids that no password file knows, and no ``HOME``.

The standard library raises for such users where it is asked for a name or a home folder; nothing else here asks it.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path


def home_folder() -> Path | None:
    """Return the user's home folder, or None for a user who has neither ``HOME`` nor an entry in the password file."""
    try:
        return Path.home()
    except (RuntimeError, KeyError):
        return None


def with_home(path: str | Path) -> Path:
    """Return a path with the user's home folder in the place of a leading ``~``; as it is for users who have none."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, KeyError):
        return Path(path)


def user_name() -> str:
    """Return the user's name, or ``uid-N`` for a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid-{os.getuid()}"
