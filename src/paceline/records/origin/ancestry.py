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
    commits = commits_of(runs)
    bits = _known(commits, root)
    places = {commit: place for place, commit in enumerate(commits)}
    if not bits:
        return unknown

    def is_ancestor(commit: str, other: str) -> bool:
        return commit != other and commit in places and bool(bits.get(other, 0) >> places[commit] & 1)

    return is_ancestor


def commits_of(runs: Iterable[Run]) -> list[str]:
    """Return the commits that runs name in full, each once and in order."""
    return sorted({c for r in runs if FULL_NAME.fullmatch(c := str(r.code.get("commit")))})


def known_of(commits: Sequence[str], root: Path | None = None) -> dict[str, int]:
    """Return of each of some commits which of them it has among its ancestors or is: bit i for the i-th.

    Args:
        commits: Full names, each once.
        root: As for ``ancestry_of``; without a repository, and of one commit, nothing is known.
    """
    bits = _known(commits, root)
    return {commit: bits[commit] for commit in commits} if bits else {}


def _known(commits: Sequence[str], root: Path | None) -> dict[str, int]:
    folder = root or content.checkout_root()
    if folder is None or len(commits) < 2:
        return {}
    return _ancestors(_parents(folder, commits), commits)


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
