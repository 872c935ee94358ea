"""Measuring a record again with the code that it was made with, in a git worktree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from paceline.analysis.reproduction import Reproduction, cannot, judge_reproduction
from paceline.base.aliases import OPTIONS
from paceline.base.errors import PrerequisiteError
from paceline.cli.options import warn
from paceline.drivers.machine.occupation import occupied
from paceline.drivers.machine.worktree import worktree
from paceline.records.format.record_file import content_of, files_beside, plain_form
from paceline.records.store.folder import RunRecord, load, read_record, sealed_path
from paceline.records.store.merging import merge
from paceline.spec import content


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asked for beside the record."""

    launches: int | None
    quiet: bool
    wait_s: float
    allow_concurrent: bool
    force: bool


def measure_as_it_was(
    record: RunRecord, name: str, store: Path, request: Request
) -> tuple[RunRecord | None, Reproduction]:
    """Measure a record again with its own code, which this very command of that commit does.

    Args:
        record: The run.
        name: What is measured of it: its id, or that of a measurement.
        store: Where the new record goes.
        request: The options.
    """
    repository = content.checkout_root()
    assert repository is not None, "whoever calls has looked ahead"
    try:
        with worktree(repository, record.run.code) as tree, tempfile.TemporaryDirectory() as folder:
            click.echo(f"measuring with commit {str(record.run.code['commit'])[:12]}, in {tree}", err=True)
            again, said = _measure_in(tree, record, name, Path(folder), request)
            if again is None:
                return None, cannot(f"the record's own code does not measure it here: {said}")
            merge(store, [again.path], unknown_contracts=True)
            files = files_beside(again.path)
            target = sealed_path(store, again.run)
            if files.is_dir():
                shutil.copytree(files, files_beside(target), dirs_exist_ok=True)
            kept = read_record(target)
            return kept, judge_reproduction(kept, record, force=request.force)
    except PrerequisiteError as error:
        return None, cannot(str(error))


def concurrent_option(tree: Path) -> str:
    """Return the option that measures although another run does, as a checkout's command calls it."""
    known = _text_of_command_line(tree, "options.py")
    today = "--allow-concurrent"
    return today if today in known else OPTIONS.first(today)


def _text_of_command_line(tree: Path, name: str) -> str:
    """Return a module of a checkout's command line, which once lay in one folder."""
    return next((tree / "src" / "paceline" / "cli").rglob(name)).read_text(encoding="utf-8")


def _measure_in(
    tree: Path, record: RunRecord, name: str, folder: Path, request: Request
) -> tuple[RunRecord | None, str]:
    """Call the command of a checkout on a store that holds the record only; return the new record, or what it said."""
    given = plain_form(sealed_path(folder, record.run))  # earlier code reads no compressed records
    given.parent.mkdir(parents=True)
    given.write_bytes(content_of(record.path))
    known = _text_of_command_line(tree, "reproduce.py")
    options = ["--results", str(folder)]
    options += ["--quiet"] if request.quiet else []
    options += ["--launches", str(request.launches)] if request.launches else []
    options += ["--force"] if request.force and '"--force"' in known else []
    knows_lease = "machine_options" in known
    if knows_lease:
        options += ["--code", "here", "--wait", f"{request.wait_s}s"]
        options += [concurrent_option(tree)] if request.allow_concurrent else []
    command = [sys.executable, "-m", "paceline.cli", "reproduce", name, *options]
    paths = [str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    hold = (
        nullcontext()
        if knows_lease
        else occupied(
            record.run.runner, wait_s=request.wait_s, allow_concurrent=request.allow_concurrent, say=warn
        )
    )
    with hold:
        ended = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
    new = [r for r in load([folder]).records if r.run.reason == "reproduce"]
    said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-3:]
    return (new[0] if new else None), " / ".join(said)
