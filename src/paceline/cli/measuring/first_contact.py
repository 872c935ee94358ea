"""``paceline first-contact``: measure on a new machine what tells most first; or make job folders of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_OK, UserError
from paceline.cli.measuring.run import describe_plan, say_failures
from paceline.cli.options import launch_options, machine_options, results_option, warn
from paceline.cli.publishing.building import build_site
from paceline.cli.publishing.site import default_output
from paceline.drivers.execute import Outcome
from paceline.records.store.folder import load, read_record
from paceline.report.summaries.decided import board_points, summarise, summary_lines
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.launches import Launches
from paceline.workflows.running import exit_code, perform
from paceline.workflows.stores import default_results

if TYPE_CHECKING:
    from paceline.workflows.first_contact import FirstContact

LISTS = "examples/first-contact-{device}.yaml"


@click.command("first-contact")
@click.option(
    "--list",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="The list of steps; default: the one for the runner's kind of device.",
)
@click.option(
    "--runner", default=None, help="Runner profile; default: the list's own, or local-cpu without a list."
)
@click.option(
    "--only", multiple=True, metavar="STEP", help="Only this step; may be given several times.", type=str
)
@launch_options
@click.option("--dry-run", is_flag=True, help="Print the steps, and measure nothing.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="Make a folder of jobs for a machine that has only torch and numpy, and measure nothing here.",
)
@click.option(
    "--collect",
    "collected",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Record what was measured in such a folder.",
)
@click.option(
    "--site",
    "site",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder of the site; default: build/site.",
)
@results_option
@machine_options
def first_contact(
    path: Path | None,
    runner: str | None,
    only: tuple[str, ...],
    launches: Launches | None,
    budget_s: float | None,
    dry_run: bool,
    output: Path | None,
    collected: Path | None,
    site: Path | None,
    results: Path | None,
    wait_s: float,
    allow_concurrent: bool,
) -> None:
    """Measure on a new machine what tells most first, step by step; again after an interruption, it goes on.

    Ends with the site and a summary. On a machine that has only torch and numpy: --output DIR here, copy it there, run
    `sh run.sh` in it, copy it back, and --collect DIR.
    """
    from paceline.workflows import first_contact as steps  # noqa: PLC0415 - pydantic only when it is called

    if budget_s is not None:
        raise UserError("each step has its own budget", where="--budget", fix="--launches, or --only STEP")
    store = results or default_results()
    if collected is not None:
        sys.exit(_collect(collected, store, site))
    if path is None:
        path = _usual_list(runner or "local-cpu")
    contact = steps.load_first_contact(path, runner=runner, only=only, launches=launches, say=warn)
    if output is not None:
        made = steps.export(contact, output)
        _missing(contact)
        click.echo(
            f"made {number_of(len(made), 'job')} in {output}; on the machine to measure: sh {output}/run.sh [SECONDS]; "
            f"then here: paceline first-contact --collect {output}"
        )
        return
    if dry_run:
        for step in contact.steps:
            click.echo(f"{step.name}: {step.tells}")
            if step.prepared is not None:
                click.echo("  " + describe_plan(step.prepared.plan).replace("\n", "\n  "))
        _missing(contact)
        return
    sys.exit(_measure(contact, store, site, wait_s, allow_concurrent))


def _usual_list(runner: str) -> Path:
    """Return the list for a runner's kind of device.

    Raises:
        UserError: There is none.
    """
    device = load_runner(content.find_runner(runner)).model.device
    path = content.docs_folder() / LISTS.format(device=device)
    if not path.is_file():
        raise UserError(
            f"no list of steps is made for the device {device}",
            where=runner,
            fix="--list FILE; docs/installing.md has one",
        )
    return path


def _measure(
    contact: FirstContact, store: Path, site: Path | None, wait_s: float, allow_concurrent: bool
) -> int:
    from paceline.workflows import first_contact as steps  # noqa: PLC0415 - as above

    codes = [EXIT_OK]
    for number, step in enumerate(contact.steps, 1):
        title = f"step {number} of {len(contact.steps)}, {step.name}"
        if step.prepared is None:
            click.echo(f"{title}: not run: {step.missing}")
            continue
        if (run_id := steps.done(step, store)) is not None:
            click.echo(f"{title}: done before, in {run_id}")
            continue
        click.echo(f"{title}: {step.tells}")
        outcome = perform(
            steps.begun(step, store) or step.prepared,
            store,
            say=warn,
            wait_s=wait_s,
            allow_concurrent=allow_concurrent,
        )
        codes.append(exit_code(outcome))
        _told(outcome)
        if outcome.interrupted:
            click.echo("go on with the same command")
            return codes[-1]
    _finish(store, site)
    return max(codes)


def _collect(folder: Path, store: Path, site: Path | None) -> int:
    from paceline.workflows import first_contact as steps  # noqa: PLC0415 - as above

    codes = [EXIT_OK]
    for name, found in steps.collect(folder, store).items():
        if isinstance(found, str):
            click.echo(f"{name}: {found}")
            continue
        click.echo(f"{name}:")
        _told(found)
        codes.append(exit_code(found))
    _finish(store, site)
    return max(codes)


def _told(outcome: Outcome) -> None:
    """Say how a step ended."""
    counts = ", ".join(f"{n} {status}" for status, n in sorted(outcome.statuses.items()))
    missing = f", {outcome.num_missing} missing" if outcome.num_missing else ""
    click.echo(f"  {counts}{missing}; record {outcome.path}")
    if outcome.path is not None:
        say_failures(read_record(outcome.path))


def _finish(store: Path, site: Path | None) -> None:
    """Build the site, and say what was decided."""
    target = (site or default_output()).resolve()
    build_site(target, results=store)
    click.echo(f"site: {target}/index.html")
    for line in summary_lines(summarise(board_points(load([store]).records))):
        click.echo(line)


def _missing(contact: FirstContact) -> None:
    for step in contact.steps:
        if step.prepared is None:
            click.echo(f"{step.name}: not run: {step.missing}")
