"""Put a finished site where others read it: a folder, or a branch of a git repository with one commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from paceline.base.errors import InfrastructureError, UserError


def to_folder(site: Path, target: Path) -> None:
    """Replace a folder as a whole; readers see the old site or the new one, and nothing is left of the old one.

    Raises:
        UserError: The target is something else than a site.
    """
    if target.exists() and not (target / "index.html").is_file() and any(target.iterdir()):
        raise UserError(
            "the folder to publish to holds something else than a site, and would be replaced",
            where=str(target),
            expected="a new or empty folder, or an earlier site",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        fresh, old = Path(folder) / "new", Path(folder) / "old"
        shutil.copytree(site, fresh)
        if target.exists():
            target.rename(old)
        fresh.rename(target)


def to_branch(site: Path, repository: Path, branch: str, *, message: str, push: bool) -> str:
    """Make a site the only commit of a branch, without touching what is checked out.

    Returns:
        The commit.

    Raises:
        UserError: No repository, or the branch is checked out there.
        InfrastructureError: Git failed.
    """
    if not repository.is_dir():
        raise UserError("no such repository", where=str(repository), fix=f"git clone URL {repository}")
    folder = Path(_git(repository, "rev-parse", "--absolute-git-dir"))
    reference = f"refs/heads/{branch}"
    _git(repository, "check-ref-format", reference)
    if f"branch {reference}\n" in _git(repository, "worktree", "list", "--porcelain") + "\n":
        raise UserError(
            f"the branch '{branch}' is checked out", where=str(repository), expected="another branch"
        )
    with tempfile.TemporaryDirectory() as temporary:
        index = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
        where = ("--git-dir", str(folder), "--work-tree", str(site))
        _git(site, *where, "add", "--all", "--force", ".", extra=index)
        tree = _git(site, *where, "write-tree", extra=index)
    identity = {
        f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in IDENTITY.items()
    }
    commit = _git(repository, "commit-tree", tree, "-m", message, extra=identity)
    _git(repository, "update-ref", reference, commit)
    if push:
        _git(repository, "push", "--force", "origin", f"{reference}:{reference}")
    return commit


IDENTITY = {"NAME": "Paceline", "EMAIL": "paceline@localhost"}


def _git(folder: Path, *arguments: str, extra: dict[str, str] | None = None) -> str:
    command = ["git", "-C", str(folder), *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(extra or {})}
    )
    if ended.returncode != 0:
        raise InfrastructureError(f"git {arguments[0]} failed in {folder}: {ended.stderr.strip()}")
    return ended.stdout.strip()
