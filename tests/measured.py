"""Runs written suites as the command does, and gives what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import seeds
import yaml

from paceline.drivers.measure import measure
from paceline.records.store.folder import RunRecord, read_record
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite


def record_of_text(
    text: str, folder: Path, *, extra: Sequence[Path] = (), seed: int | None = None
) -> RunRecord:
    """Measure one suite that is written out, with techniques of files of its own."""
    path = folder / "suite.yaml"
    path.write_text(text.lstrip())
    return record_of([load_suite(path, extra=extra)], folder, seed=seed)


def record_of(
    suites: Sequence[Suite],
    folder: Path,
    *,
    runner: str = "local-cpu",
    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None,
    seed: int | None = None,
) -> RunRecord:
    """Measure suites on an embedded runner, leave the results below a folder, and return the run's record.

    Everything that is drawn follows from the seed: the module's, unless another is given.
    """
    chosen = Selection(seed=seeds.current() if seed is None else seed)
    plan = make_plan(suites, load_runner(content.find_runner(runner)), chosen)
    outcome = measure(plan, suites, folder / "results", on_event=on_event)
    assert outcome.path is not None
    return read_record(outcome.path)


def fenced_runner(folder: Path) -> Path:
    """Write a runner that isolates nobody: for tests of the fences, which sandboxes do without (``tests/sandbox``)."""
    path = folder / "runner.yaml"
    facts = {
        "runner": "fenced",
        "description": "No sandbox.",
        "driver": "local",
        "device": "cpu",
        "max_ranks": 1,
    }
    more = {"backend": "gloo", "env": {"OMP_NUM_THREADS": "1"}, "isolation": "unisolated"}
    path.write_text(yaml.safe_dump(facts | more))
    return path
