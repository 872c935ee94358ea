"""``paceline nightly``: measure what is due, alarm on what got worse, publish the site."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.base.errors import EXIT_OK
from paceline.base.units import format_duration
from paceline.cli.measuring.estimates import time_text
from paceline.cli.options import json_option, print_json, results_option, warn
from paceline.cli.publishing.building import build_site
from paceline.cli.publishing.site import default_output
from paceline.records.earlier_runs import plan_estimate
from paceline.records.origin.ancestry import ancestry_of
from paceline.spec.plans.plan import part_of
from paceline.workflows.stores import default_results, load_stores, stores

if TYPE_CHECKING:
    from paceline.workflows.nightly.night import Night

NIGHTS = "nights"
"""Folder of a store with a report of every night."""


@click.command("nightly")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The nightly file; docs/suites.md lists every key.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print what tonight would measure, and which night measures the rest."
)
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of the site."
)
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write a JUnit file."
)
@click.option(
    "--summary",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Append the report to this file.",
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
    """Measure the suites that are due, and compare each series with the nights before.

    The oldest and most important suites come first. A regression is measured again before it becomes an alarm. Exit
    code 1: alarms; 3: the machine failed, or another run uses it; 5: a technique gave a wrong result.
    """
    from paceline.workflows.nightly import report as reports  # noqa: PLC0415 - scipy only when it is called
    from paceline.workflows.nightly.config import load_nightly  # noqa: PLC0415
    from paceline.workflows.nightly.night import Night  # noqa: PLC0415

    plan = load_nightly(config)
    given = plan.beside(plan.model.results) if plan.model.results else None
    store = results or given or default_results()
    night = Night(
        nightly=plan,
        store=store,
        load=lambda: load_stores(results or given, new=True),
        say=warn,
        ancestry=ancestry_of,
        stores=tuple(stores(results or given, new=True)),
    )
    left_out = [f"{u.name}: left out: {u.omitted}" for u in plan.omitted]
    for line in left_out:
        warn(line)
    if dry_run:
        facts = agenda_facts(night)
        if as_json:
            print_json(facts)
        else:
            click.echo(agenda(facts))
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
        print_json({**found.facts(), "warnings": left_out})
    else:
        click.echo(text)
    if plan.model.site:
        target = (output or (plan.beside("site") if given else default_output())).resolve()
        build_site(target, results=results or given)
        (target / "night.md").write_text(text, encoding="utf-8")
        (target / "night.html").write_text(reports.page(found), encoding="utf-8")
        _publish(night, target, found.started)
    sys.exit(found.exit_code)


def agenda_facts(night: Night) -> dict[str, Any]:
    """Return what a night that begins now would do, as plain data."""
    units, found = night.agenda()
    times = night.times()
    tonight = []
    for share in found.tonight:
        one = units[share.place]
        plan = part_of(one.plan, share.blocks)
        tonight.append(
            {
                "unit": one.name(len(share.blocks)),
                "blocks": list(share.blocks),
                "age_s": share.age_s,
                "priority": one.unit.priority,
                "planned_s": share.likely_s,
                "estimate": (estimate := plan_estimate(plan, times)),
                "text": time_text(plan, estimate),
                "longer_than_the_budget": share.too_long,
            }
        )
    return {
        "budget_s": night.nightly.budget_s,
        "planned_s": sum(s.likely_s for s in found.tonight),
        "tonight": tonight,
        "later": [
            {
                "unit": later.planned.name(later.num_blocks),
                "nights_from_now": list(later.nights),
                "text": later.text,
            }
            for later in found.later
        ],
        "skipped": dict(found.skipped),
    }


def agenda(facts: Mapping[str, Any]) -> str:
    """Say what a night would measure, in its order, what it leaves to which night, and what cannot run."""
    planned, budget = format_duration(facts["planned_s"]), format_duration(facts["budget_s"])
    lines = [f"tonight, about {planned} of {budget}:" if facts["tonight"] else "tonight: nothing"]
    for one in facts["tonight"]:
        never = one["age_s"] == float("inf")
        age = "no night has tried it" if never else f"last tried {format_duration(one['age_s'])} ago"
        lines.append(f"  {one['unit']}: {age}, priority {one['priority']:g}; {one['text']}")
        if one["longer_than_the_budget"]:
            lines.append(
                "    it may end after the budget: it is the most urgent, and no night is long enough for it"
            )
    if facts["later"]:
        lines += ["later:", *(f"  {one['unit']}: {one['text']}" for one in facts["later"])]
    return "\n".join([*lines, *(f"{name}: skipped: {why}" for name, why in facts["skipped"].items())])


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
