"""The code of an earlier commit, in a git worktree of its own, for as long as it is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.base.errors import PrerequisiteError
from paceline.drivers.machine.leftovers import WORKTREES
from paceline.drivers.machine.state import state_folder
from paceline.records.origin.provenance import changed_files


@contextmanager
def worktree(repository: Path, code: Mapping[str, Any]) -> Iterator[Path]:
    """Check out the code that a record names, with the uncommitted changes that it holds.

    Args:
        repository: A clone that has the commit.
        code: The record's code facts.

    Raises:
        PrerequisiteError: What is missing to bring the code back.
    """
    require(repository, code)
    commit = str(code.get("commit"))
    folder = state_folder() / WORKTREES / f"{commit[:12]}-{os.getpid()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = _git(repository, "worktree", "add", "--detach", "--force", str(folder), commit)
    if made.returncode != 0:
        raise PrerequisiteError(f"git worktree failed: {made.stderr.strip()}", fix="git worktree prune")
    try:
        if code.get("dirty"):
            _apply(folder, code)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _git(repository, "worktree", "prune")


def require(repository: Path | None, code: Mapping[str, Any]) -> None:
    """Make sure that the code of a record can be had, without checking it out.

    Raises:
        PrerequisiteError: What is missing.
    """
    if repository is None:
        raise PrerequisiteError(
            "a git checkout: this package was installed without one",
            fix="git clone the repository and install from there; --code=here measures with this package's code",
        )
    if shutil.which("git") is None:
        raise PrerequisiteError(
            "git, which brings the record's code back, is not installed",
            fix="apt-get install git; --code=here measures with the code that is here",
        )
    refused = _git(repository, "rev-parse", "--git-dir")
    if refused.returncode != 0:
        raise PrerequisiteError(
            f"git refuses: {refused.stderr.strip().partition(chr(10))[0]}",
            fix=f"git config --global --add safe.directory {repository}, if it is another user's",
        )
    commit = str(code.get("commit"))
    if _git(repository, "cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        raise PrerequisiteError(
            f"commit {commit[:12]} is not in this repository",
            fix=f"git fetch origin {commit}; --code=here measures with the code that is here",
        )
    if code.get("dirty") and "diff" not in code:
        raise PrerequisiteError(
            "the record was made with uncommitted changes that it does not hold", fix="--code=here"
        )


def _apply(folder: Path, code: Mapping[str, Any]) -> None:
    """Apply a record's uncommitted changes; files that git did not know are not in them."""
    patch = str(code["diff"]).rstrip("\n") + "\n"
    applied = _git(folder, "apply", "--whitespace=nowarn", "-", given=patch) if patch.strip() else None
    changed = changed_files(folder)
    lost = [name for name in code.get("changed_files") or () if name not in changed]
    if (applied is not None and applied.returncode != 0) or lost:
        why = (
            f"files that git did not know: {', '.join(lost)}"
            if lost
            else applied.stderr.strip()
            if applied
            else ""
        )
        raise PrerequisiteError(
            f"the record's uncommitted changes cannot be brought back: {why}", fix="--code=here"
        )


def _git(folder: Path, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, input=given)
