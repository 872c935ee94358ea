"""Which commit is an ancestor of which: asked of git once, for all commits of some runs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from paceline.records.format.record import Run
from paceline.spec import content

IsAncestor = Callable[[str, str], bool]
"""Says whether the first commit is an ancestor of the second, and not the same; False where that is not known."""
FULL_NAME = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def unknown(commit: str, other: str) -> bool:
    """Know of no commit that it is an ancestor of another."""
    return False


def ancestry_of(runs: Iterable[Run], root: Path | None = None) -> IsAncestor:
    """Return what a repository knows about the commits of runs.

    Nothing is known of commits that it does not have, and of all where there is no repository or no git. In a shallow
    clone only what its commits still say is known.

    Args:
        runs: Whose commits may be asked about.
        root: A folder of the repository; None for the checkout that this package runs from.
    """
    named = {str(r.code.get("commit")) for r in runs}
    commits = sorted(c for c in named if FULL_NAME.fullmatch(c))
    folder = root or content.checkout_root()
    if folder is None or len(commits) < 2:
        return unknown
    bits = _ancestors(_parents(folder, commits), commits)
    places = {commit: place for place, commit in enumerate(commits)}

    def is_ancestor(commit: str, other: str) -> bool:
        return commit != other and commit in places and bool(bits.get(other, 0) >> places[commit] & 1)

    return is_ancestor


def _ancestors(parents: dict[str, list[str]], commits: Sequence[str]) -> dict[str, int]:
    """Return of each commit which of ``commits`` it has among its ancestors or is: bit i for the i-th.

    Args:
        parents: Commit → its parents, children before them.
        commits: Those that are asked about.
    """
    found = {commit: 1 << place for place, commit in enumerate(commits)}
    for commit in reversed(parents):
        for parent in parents[commit]:
            found[commit] = found.get(commit, 0) | found.get(parent, 0)
    return found


def _parents(folder: Path, commits: Sequence[str]) -> dict[str, list[str]]:
    """Return the parents of some commits and of all their ancestors, children first; empty where git cannot say."""
    command = [
        "git",
        "-C",
        str(folder),
        "rev-list",
        "--topo-order",
        "--parents",
        "--ignore-missing",
        "--stdin",
    ]
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}  # a partial clone asks nobody
    try:
        said = subprocess.run(
            command,
            input="".join(f"{c}\n" for c in commits),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except OSError:  # there is no git
        return {}
    if said.returncode:
        return {}
    lines = (line.split() for line in said.stdout.splitlines())
    return {commit: parents for commit, *parents in lines}
