"""``paceline reproduce``: measure a published record again and set the two beside each other."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import click

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.analysis.reproduction import Reproduction, cannot, judge_reproduction, same_code
from paceline.analysis.runs import compare_runs, incomparable
from paceline.base.errors import EXIT_INCOMPARABLE, EXIT_OK, EXIT_REGRESSION, InfrastructureError, UserError
from paceline.base.families.family import family_names, load_family
from paceline.cli.measuring.run import describe_plan
from paceline.cli.options import (
    machine_options,
    results_option,
    warn,
    wide_option,
)
from paceline.cli.reproducing.earlier_code import Request, measure_as_it_was
from paceline.cli.reproducing.obstacles import look_ahead
from paceline.drivers.docker.states import IMAGE_MISSING
from paceline.drivers.execute import Outcome
from paceline.drivers.machine.devices import on_this_machine
from paceline.drivers.machine.occupation import Occupation, occupied
from paceline.drivers.measure import measure
from paceline.drivers.progress import RunProgress
from paceline.records.earlier_runs import RunTimes
from paceline.records.format.record import Event, Measurement, Run
from paceline.records.identity import utc
from paceline.records.origin.own_code import write_code
from paceline.records.origin.own_techniques import write_sources
from paceline.records.origin.provenance import code_state, technique_facts, used_files
from paceline.records.store.folder import RunRecord, read_record
from paceline.records.store.integrity import append_event
from paceline.records.store.lookup import find_measurement, find_run
from paceline.records.store.storage import resume_command
from paceline.report.tables.results import board_table, marked, run_comparison_table
from paceline.spec import content
from paceline.spec.own.techniques import join_user_techniques
from paceline.spec.plans.plan import CaseKey, Plan, Selection, canonical, make_plan
from paceline.spec.profiles.profile import in_image, load_runner
from paceline.spec.suites.grammar import TIERS, TierName
from paceline.spec.suites.suite import Suite
from paceline.workflows.choosing import expand_suites
from paceline.workflows.running import earlier_runs, exit_code
from paceline.workflows.stores import default_results, stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is to be measured again: a whole run, or one point of it."""

    record: RunRecord
    measurement: Measurement | None = None
    files: Sequence[Path] = ()
    """The users' own techniques of the run, as the record holds them."""
    code: Mapping[str, Path] = field(default_factory=dict)
    """By suite the folder of the users' own models and data, as the record holds them."""

    @property
    def measurements(self) -> Sequence[Measurement]:
        """All measurements of the run, or those of the point."""
        if self.measurement is None:
            return self.record.measurements
        point = (self.measurement.suite, self.measurement.block)
        return [m for m in self.record.measurements if (m.suite, m.block) == point]


@click.command("reproduce")
@click.argument("name", metavar="RECORD")
@click.option(
    "--launches",
    type=click.IntRange(1),
    default=None,
    help="Launches of every point [default: as many as the record has].",
)
@click.option(
    "--code",
    type=click.Choice(("record", "here")),
    default="record",
    show_default=True,
    help="record: the record's code, in a git worktree if this checkout differs; here: the code of this checkout.",
)
@click.option("--exact", is_flag=True, help="Refuse if code, suite or technique differ from the record's.")
@click.option(
    "--force",
    is_flag=True,
    help="Measure even if host classes differ; the verdict is marked, and decides nothing.",
)
@click.option("--dry-run", is_flag=True, help="Print what differs and what would run, and measure nothing.")
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
@machine_options
@wide_option
@results_option
def reproduce(
    name: str,
    launches: int | None,
    code: str,
    exact: bool,
    force: bool,
    dry_run: bool,
    quiet: bool,
    wait_s: float,
    allow_concurrent: bool,
    wide: bool,
    results: Path | None,
) -> None:
    """Measure a record or a run again, with its code, and compare the results.

    RECORD is the id of a run or of a measurement; of a measurement, the whole point is measured with all its
    techniques. Those of a file of somebody's own are in the record, as are models and data that a suite names, and are
    measured as they are there. The verdict is equivalent, different (exit code 1), inconclusive, or cannot (exit code
    6). With cannot, the command names what is missing, and measures nothing.
    """
    target = with_own_files(find_target(stores(results), name))
    store = results or default_results()
    elsewhere = (
        code == "record"
        and not exact
        and not same_code(target.record.run.code, code_state(used=_files_of(target.record.run)))
    )
    prospect = look_ahead(target.record.run, target.measurements, elsewhere=elsewhere)
    for line in prospect.remarks:
        warn(line)
    refused = prospect.refusal(force=force)
    if refused and not dry_run:
        _conclude(None, target, cannot(*refused), store)
    if elsewhere and not dry_run and target.record.run.code.get("commit"):
        request = Request(
            launches=launches, quiet=quiet, wait_s=wait_s, allow_concurrent=allow_concurrent, force=force
        )
        again, answer = measure_as_it_was(target.record, name, store, request)
        _conclude(again, target, answer, store, wide=wide)
    try:
        plan, suites = plan_again(target, launches)
    except UserError as error:
        _conclude(None, target, cannot(*refused, str(error)), store)
    changes = differences(target, suites, plan)
    for line in changes:
        click.echo(f"differs: {line}", err=True)
    if changes and exact:
        raise UserError("this is not what was measured", fix=checkout_command(target.record))
    if elsewhere and dry_run:
        click.echo("its code would be checked out into a worktree of its own", err=True)
    if elsewhere and not dry_run and (changed := [c for c in changes if not c.startswith("code:")]):
        _conclude(None, target, cannot("the record names no commit", *changed), store)
    earlier = earlier_runs(results)
    click.echo(describe_plan(plan, earlier, wide=wide), err=True)
    if dry_run:
        if refused:
            _conclude(None, target, cannot(*refused), store)
        return
    with occupied(plan.data["runner"], wait_s=wait_s, allow_concurrent=allow_concurrent, say=warn) as place:
        outcome = _measure_here(plan, suites, target, store, place, earlier, quiet=quiet)
    if outcome.path is None:
        click.echo(f"interrupted; go on with: {resume_command(outcome.run_id, store)}")
        sys.exit(exit_code(outcome))
    again = read_record(outcome.path)
    answer = judge_reproduction(again, target.record, force=force)
    _conclude(again, target, answer, store, code=exit_code(outcome), wide=wide)


def _measure_here(
    plan: Plan,
    suites: Sequence[Suite],
    target: Target,
    store: Path,
    place: Occupation,
    earlier: Sequence[RunTimes],
    *,
    quiet: bool,
) -> Outcome:
    """Measure with the code that is here; end where the record's image is gone."""
    with RunProgress(plan, earlier, quiet=quiet) as progress:
        try:
            return measure(
                plan,
                suites,
                store,
                reason="reproduce",
                linked_run=target.record.run.run_id,
                place=place,
                on_event=progress.event,
            )
        except InfrastructureError as error:
            if not str(error).startswith(IMAGE_MISSING):
                raise
            _conclude(None, target, cannot(str(error).partition("\n")[0]), store)


def _conclude(
    again: RunRecord | None,
    target: Target,
    answer: Reproduction,
    store: Path,
    *,
    code: int = EXIT_OK,
    wide: bool = False,
) -> NoReturn:
    """Show what was measured beside the record, note the verdict with the new run, and end."""
    if again is not None:
        points = points_of(again)
        comparisons = compare_points(points)
        for suite in dict.fromkeys(p.suite for p in points):
            table = board_table([p for p in points if p.suite == suite], comparisons, wide=wide)
            click.echo(table.render(wide=wide))
        if incomparable(again.run, target.record.run) is None or answer.forced:
            shared = run_comparison_table(compare_runs(again, target.record), "now", "record", wide=wide)
            click.echo(marked(shared, answer.forced).render(wide=wide))
        forced = f"forced, not comparable ({answer.forced}): " if answer.forced else ""
        text = f"reproduction of run {target.record.run_id}: {forced}{answer.answer}"
        why = f": {'; '.join(answer.reasons)}" if answer.reasons else ""
        data = {
            "run_id": again.run_id,
            "text": text + why,
            "reproduction": "cannot" if answer.forced else answer.answer,
        }
        append_event(store, Event(kind="annotate", at=utc(), run_id=again.run_id, data=data))
    click.echo(answer.text())
    if again is not None:
        click.echo(f"record {again.path}")
    told = {"different": EXIT_OK if answer.forced else EXIT_REGRESSION, "cannot": EXIT_INCOMPARABLE}
    sys.exit(code or told.get(answer.answer, EXIT_OK))


def find_target(roots: Sequence[Path], name: str) -> Target:
    """Find a measurement or a run by its id.

    Raises:
        UserError: Neither has this id, or the run was imported or retracted.
    """
    measured = find_measurement(roots, name)
    if measured is not None:
        return _own(Target(record=measured[0], measurement=measured[1]))
    return _own(Target(record=find_run(roots, name)))


def with_own_files(target: Target) -> Target:
    """Return the target with the users' techniques that its record holds, in files that go when this command ends."""
    used = {f"{m.family}/{m.technique}" for m in target.measurements}
    folder = click.get_current_context().with_resource(
        tempfile.TemporaryDirectory(prefix="paceline-techniques-")
    )
    files, missing = write_sources(target.record.run, used, Path(folder))
    for file in files:
        warn(f"{file.name} is measured as the record holds it: code of whoever made the record")
    code: dict[str, Path] = {}
    for number, suite in enumerate(sorted({m.suite for m in target.measurements})):
        place = Path(folder) / f"code-{number}"
        written, lost = write_code(target.record.run, suite, place)
        for name in written:
            warn(f"{name} is measured as the record holds it: code of whoever made the record")
        if written and not lost:
            code[suite] = place
        missing += lost
    for line in missing:
        warn(line)
    return replace(target, files=files, code=code)


def _own(target: Target) -> Target:
    if target.record.run.imported_from is not None:
        raise UserError(
            "an imported result cannot be measured again here",
            where=str(target.record.path),
            expected="a run that Paceline made",
        )
    return target


def _files_of(run: Run) -> list[Path]:
    """Return the files of this checkout that have the names of a run's suites and techniques."""
    suites = content.suite_files()
    found = [suites[s["suite"]] for s in run.suites if s["suite"] in suites]
    for family, _, name in (key.partition("/") for key in run.techniques):
        if family in family_names() and name in (known := content.techniques(family)):
            found.append(known[name].path)
    return found


def plan_again(target: Target, launches: int | None) -> tuple[Plan, list[Suite]]:
    """Plan what the record holds as it was: its cases, tier and runner, and its seed where that was fixed.

    Cases that this checkout does not have are left out; ``differences`` names them.

    Raises:
        UserError: A suite or the runner is gone, or none of the cases is left.
    """
    run = target.record.run
    names = sorted({m.suite for m in target.measurements})
    found = [
        replace(suite, code_folder=target.code.get(suite.name))
        for suite in expand_suites(names, say=warn, extra=target.files)
    ]
    suites, _ = join_user_techniques(found, target.files)
    count = launches or 1 + max((m.launch for m in target.record.measurements), default=0)
    selection = Selection(
        tier=_tier(run.tier),
        launches=count,
        seed=run.fixed_seed,
        only=frozenset(case_key(m) for m in target.measurements),
    )
    runner = on_this_machine(load_runner(content.find_runner(str(run.runner["name"]))))
    if run.container is not None and runner.model.docker is not None:
        runner = in_image(runner, str(run.container["image_id"]))
    plan = make_plan(suites, runner, selection)
    if not plan.num_cases:
        raise UserError("the suite no longer has this point", fix=checkout_command(target.record))
    return plan, suites


def _tier(name: str | None) -> TierName:
    """Return a record's tier; records from before tiers were noted are of the standard one."""
    return next((tier for tier in TIERS if tier == name), "standard")


def case_key(m: Measurement) -> CaseKey:
    """Return what names a measurement's case in a plan; parameters that are younger than it have their default."""
    family = load_family(m.family)
    operation = str(m.params.get(family.operation_key, ""))
    defaults = {p.name: p.default for p in family.parameters_for(operation)}
    return m.suite, canonical({**defaults, **m.params}), m.label


def differences(target: Target, suites: Sequence[Suite], plan: Plan) -> list[str]:
    """Say in which of code, suites, techniques and cases this checkout differs from the record's."""
    run, found = target.record.run, []
    here = code_state(used=used_files(suites, plan.blocks))
    if here.get("commit") != run.code.get("commit"):
        found.append(f"code: commit {here.get('commit')} here, {run.code.get('commit')} in the record")
    if here.get("dirty") or run.code.get("dirty"):
        side = "here" if here.get("dirty") else "in the record"
        names = (here if here.get("dirty") else run.code).get("changed_files") or ()
        found.append(f"code: uncommitted changes {side}: {', '.join(names) or 'in files that are not named'}")
    digests = {s["suite"]: s.get("sha256") for s in run.suites}
    for suite in suites:
        if content.sha256_file(suite.path) != digests.get(suite.name):
            found.append(f"suite {suite.name}: the file has changed")
    recorded = {name: facts.get("sha256") for name, facts in run.techniques.items()}
    for name, facts in technique_facts(suites, plan.blocks).items():
        if name in recorded and facts.get("sha256") != recorded[name]:
            found.append(f"technique {name}: the source has changed")
    planned = {(b["suite"], canonical(b["params"]), c["label"]) for b in plan.blocks for c in b["cases"]}
    for suite_name, params, label in sorted({case_key(m) for m in target.measurements} - planned):
        found.append(f"{suite_name} {label} at {params}: not in this checkout, left out")
    return found


def checkout_command(record: RunRecord) -> str:
    """Return the commands that bring back the code of a record."""
    commit = record.run.code.get("commit")
    if not commit:
        return "the record names no commit"
    return f"git checkout {commit} && pip install -e . -c constraints.txt"
