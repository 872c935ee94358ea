"""``paceline nightly``: measure what is due, alarm on what got worse, publish the site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paceline.base.errors import EXIT_OK
from paceline.base.units import format_duration
from paceline.cli.compare import load_stores
from paceline.cli.options import default_results, json_option, print_json, results_option, warn
from paceline.cli.site import build_site, default_output

if TYPE_CHECKING:
    from paceline.workflows.nightly.night import Night

NIGHTS = "nights"
"""Folder of a store with a report of every night."""


@click.command("nightly")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The nightly file; docs/nightly.md has every key.",
)
@click.option("--dry-run", is_flag=True, help="Say what is due, in which order.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of the site."
)
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write a JUnit file."
)
@click.option(
    "--summary", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Append the report here."
)
@results_option
@json_option
def nightly(
    config: Path,
    dry_run: bool,
    output: Path | None,
    junit: Path | None,
    summary: Path | None,
    results: Path | None,
    as_json: bool,
) -> None:
    """Measure what is due, oldest and most important first, and compare each series with the nights before.

    What got worse is measured again before it is an alarm. Exit code 1: alarms; 3: the machine failed, or another
    run has it; 5: a technique gave a wrong result.
    """
    from paceline.workflows.nightly import report as reports  # noqa: PLC0415 - scipy only when it is called
    from paceline.workflows.nightly.config import load_nightly  # noqa: PLC0415
    from paceline.workflows.nightly.night import Night  # noqa: PLC0415

    plan = load_nightly(config)
    given = plan.beside(plan.model.results) if plan.model.results else None
    store = results or given or default_results()
    night = Night(nightly=plan, store=store, load=lambda: load_stores(results or given), say=warn)
    if dry_run:
        click.echo(agenda(night))
        sys.exit(EXIT_OK)
    found = night.run()
    text = reports.markdown(found)
    folder = store / NIGHTS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{found.started[:19].replace(':', '')}.md").write_text(text, encoding="utf-8")
    if junit is not None:
        junit.write_text(reports.junit(found), encoding="utf-8")
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(text)
    if as_json:
        print_json(found.facts())
    else:
        click.echo(text)
    if plan.model.site:
        target = (output or (plan.beside("site") if given else default_output())).resolve()
        build_site(target, results=results or given)
        (target / "night.md").write_text(text, encoding="utf-8")
        _publish(night, target, found.started)
    sys.exit(found.exit_code)


def agenda(night: Night) -> str:
    """Say what a night would do, in its order."""
    from paceline.workflows.nightly.night import NightReport  # noqa: PLC0415

    report = NightReport(nightly="", started="")
    lines = []
    for due, unit, _ in night.due(report):
        age = (
            "never measured by a night" if due.age_s == float("inf") else f"{format_duration(due.age_s)} old"
        )
        lines.append(f"{unit.name}: {age}, priority {unit.priority:g}, about {format_duration(due.likely_s)}")
    return "\n".join([*lines, *(f"{u.name}: skipped: {u.why}" for u in report.units)])


def _publish(night: Night, site: Path, started: str) -> None:
    from paceline.workflows.nightly import publish  # noqa: PLC0415

    target = night.nightly.model.publish
    if target is None:
        return
    if target.folder is not None:
        publish.to_folder(site, night.nightly.beside(target.folder))
        click.echo(f"published to {night.nightly.beside(target.folder)}", err=True)
    elif target.git is not None:
        repository = night.nightly.beside(target.git.repository)
        commit = publish.to_branch(
            site, repository, target.git.branch, message=f"site of {started[:10]}", push=target.git.push
        )
        click.echo(f"published as {commit[:12]} on {target.git.branch} of {repository}", err=True)
