"""First contact with a new machine: an ordered list of what to measure, most telling first, done step by step.

A step is done once a sealed run of its plan is in the store, so that the list can be interrupted and gone on with. For
a machine with torch and numpy alone every step becomes a job folder, which are measured there in the same order.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from paceline.base.errors import UserError, UserErrors
from paceline.base.families.family import Scalar
from paceline.drivers.execute import JOBS, Outcome, collect_job
from paceline.drivers.job import build_job, read_job
from paceline.drivers.measure import make_facts
from paceline.records.format.record_file import run_id_of
from paceline.records.store.folder import is_recorded, load, sealed_paths
from paceline.spec.files.kinds import refuse_other_kinds
from paceline.spec.files.models import FileModel, validate
from paceline.spec.files.yaml_file import Located
from paceline.spec.files.yaml_file import load as load_yaml
from paceline.spec.plans.unmatched import NothingRunsError
from paceline.spec.suites.grammar import TierName
from paceline.spec.suites.launches import Launches, parse_launches
from paceline.workflows.running import Prepared, Resumed, prepare

Say = Callable[[str], None]
RUN_ALL = "run.sh"
RUN_SCRIPT = """#!/bin/sh
# Measures these jobs in order, with torch and numpy only; again after an interruption, it does what is still missing.
#   sh run.sh [SECONDS]      no job is begun, and none goes on, after so many seconds
cd "$(dirname "$0")" || exit 3
began=$(date +%s)
for job in [0-9]*; do
    left=
    if [ -n "$1" ]; then
        seconds=$(( $1 - $(date +%s) + began ))
        [ "$seconds" -gt 0 ] || { echo "$job: not run: the time is over"; continue; }
        left="timeout -s INT -k 15 $seconds"
    fi
    echo "$job: begins"
    $left sh "$job/run.sh" > "$job/out.log" 2>&1
    echo "$job: exit code $?"
done
"""


class StepModel(FileModel):
    """One step: what is measured, and what it tells."""

    step: str = Field(pattern=r"[a-z0-9-]+", description="The step's name.")
    tells: str = Field(description="What is known afterwards, in one sentence.")
    suites: list[str] = Field(min_length=1, description="Suites, files or families.")
    tier: TierName = Field("full", description="How much of each suite.")
    filters: dict[str, Scalar | list[Scalar]] = Field(
        default_factory=dict, description="Only the points whose key has one of the values."
    )
    techniques: list[str] = Field(
        default_factory=list, description="Only these, and the baseline; default: all."
    )
    launches: int | str | None = Field(
        None, description="A number, or a range in which it is measured until decided."
    )


class FirstContactModel(FileModel):
    """The whole grammar of a list for first contact."""

    first_contact: str = Field(description="The name of this list.")
    description: str = Field("", description="One sentence: for which machines it is.")
    runner: str = Field(description="Runner profile.")
    steps: list[StepModel] = Field(min_length=1, description="In the order in which they are done.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step with its plan, or the reason why it is not run here."""

    name: str
    tells: str
    prepared: Prepared | None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstContact:
    """A checked list."""

    name: str
    runner: str
    steps: Sequence[Step]


def load_first_contact(
    path: Path,
    *,
    runner: str | None = None,
    only: Sequence[str] = (),
    launches: Launches | None = None,
    say: Say,
) -> FirstContact:
    """Read a list and plan its steps.

    Args:
        path: The list.
        runner: Profile in the place of the list's own.
        only: Names of steps; empty means all.
        launches: In the place of each step's own.
        say: Told every warning.

    Raises:
        UserError: A mistake in the list, with ``file:line:key``, or an unknown step.
    """
    located = load_yaml(path)
    refuse_other_kinds(located, "first_contact")
    model = validate(FirstContactModel, located)
    names = [step.step for step in model.steps]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise UserError(f"the step '{twice}' is there twice", where=str(path))
    if unknown := sorted(set(only) - set(names)):
        raise UserError(f"no step is called '{unknown[0]}'", where=str(path), expected=", ".join(names))
    mistakes: list[UserError] = []
    steps = []
    for number, step in enumerate(model.steps):
        if only and step.step not in only:
            continue
        try:
            steps.append(_planned(step, located, number, runner or model.runner, launches, say))
        except UserError as error:
            mistakes.append(error)
    if mistakes:
        raise UserErrors(mistakes)
    return FirstContact(name=model.first_contact, runner=runner or model.runner, steps=tuple(steps))


def _planned(
    step: StepModel, located: Located, number: int, runner: str, launches: Launches | None, say: Say
) -> Step:
    where = located.where(("steps", number))
    try:
        own = parse_launches(step.launches) if step.launches is not None else None
    except ValueError as error:
        raise UserError(str(error), where=located.where(("steps", number, "launches"))) from None
    try:
        prepared = prepare(
            step.suites,
            tier=step.tier,
            runner=runner,
            techniques=step.techniques,
            filters=[(key, _text(value)) for key, each in step.filters.items() for value in _values(each)],
            launches=launches or own,
            say=lambda text: say(f"{step.step}: {text}"),
        )
    except UserErrors as found:
        if all(isinstance(error, NothingRunsError) for error in found.errors):
            return Step(name=step.step, tells=step.tells, prepared=None, missing=found.errors[0].what)
        raise UserError(found.what, where=where) from None
    except UserError as error:
        raise UserError(error.what, where=where, expected=error.expected, fix=error.fix) from None
    return Step(name=step.step, tells=step.tells, prepared=prepared)


def _values(each: Scalar | list[Scalar]) -> list[Scalar]:
    return each if isinstance(each, list) else [each]


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def done(step: Step, store: Path) -> str | None:
    """Return the id of a sealed run of a step's plan, or None."""
    assert step.prepared is not None
    wanted = step.prepared.plan.sha256
    records = load([store]).records if store.is_dir() else []
    return next((r.run.run_id for r in records if r.run.plan_sha256 == wanted), None)


def begun(step: Step, store: Path) -> Prepared | None:
    """Return an interrupted run of a step's plan, which can go on, or None."""
    assert step.prepared is not None
    sealed = {run_id_of(path) for path in sealed_paths(store)}
    jobs = store / JOBS
    for folder in sorted(jobs.iterdir()) if jobs.is_dir() else []:
        if folder.name in sealed or not (folder / "engine").is_dir():
            continue
        try:
            plan, facts = read_job(folder.resolve())
        except UserError:  # somebody else's, or half of one
            continue
        if plan.sha256 == step.prepared.plan.sha256:
            return Prepared(plan=plan, resumed=Resumed(job=folder.resolve(), facts=facts))
    return None


def export(contact: FirstContact, folder: Path) -> list[Path]:
    """Make a job folder of every step that can run, and a script that measures them in order.

    Raises:
        UserError: The folder exists.
    """
    if folder.exists():
        raise UserError("the folder exists already", where=str(folder), expected="a new path")
    made = []
    try:
        for number, step in enumerate(contact.steps, 1):
            if step.prepared is None:
                continue
            job = folder / f"{number:02}-{step.name}"
            plan, suites = step.prepared.plan, step.prepared.suites
            build_job(job, plan, suites, make_facts(plan, suites))
            made.append(job)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if made:
        (folder / RUN_ALL).write_text(RUN_SCRIPT)
    return made


def collect(folder: Path, store: Path) -> Mapping[str, Outcome | str]:
    """Record every job of a folder that was measured elsewhere; what is missing of a job stays missing.

    Returns:
        By the job's name how it ended, or why it gave no record.

    Raises:
        UserError: The folder holds no job.
    """
    jobs = sorted(p.parent for p in folder.glob("[0-9]*/job.json"))
    if not jobs:
        raise UserError("no job of a first contact is here", where=str(folder))
    found: dict[str, Outcome | str] = {}
    for job in jobs:
        plan, facts = read_job(job)
        if is_recorded(store, facts["run_id"]):
            found[job.name] = f"was recorded before as {facts['run_id']}"
            continue
        try:
            found[job.name] = collect_job(job, plan, facts, store, allow_partial=True)
        except UserError as error:
            found[job.name] = error.what
    return found
