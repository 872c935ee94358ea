"""``paceline once``: one technique at one point, as a program that prints its figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from paceline.cli.options import warn
from paceline.spec.suites.grammar import TIERS, TierName
from paceline.workflows.choosing import parse_filters
from paceline.workflows.programs.once import perform_one, prepare_one


@click.command("once")
@click.argument("suite")
@click.argument("technique")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda context, parameter, items: parse_filters(items),
    help="The point, where the suite has several.",
)
@click.option(
    "--technique",
    "user_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Python file with a technique of your own.",
)
@click.option("--runner", default="local-cpu", show_default=True, help="Runner profile.")
@click.option(
    "--tier",
    type=click.Choice(TIERS),
    default="standard",
    show_default=True,
    help="Of which the point is.",
)
@click.option("--seed", type=int, default=None, help="Let all inputs follow from this number.")
def once(
    suite: str,
    technique: str,
    filters: tuple[tuple[str, str], ...],
    user_files: tuple[Path, ...],
    runner: str,
    tier: TierName,
    seed: int | None,
) -> None:
    """Measure one technique at one point once, and print its figures as a line of JSON.

    SUITE is a file or a name, TECHNIQUE what the suite calls it. Nothing is recorded: it is a program that stands
    beside one of yours, in 'paceline time' or in a suite of programs, which measure both in turn. Every figure is in
    its metric's unit (paceline show METRIC).
    """
    prepared = prepare_one(
        suite,
        technique,
        tier=tier,
        runner=runner,
        filters=filters,
        user_files=user_files,
        seed=seed,
        say=warn,
    )
    found = perform_one(prepared, say=warn)
    for failure in found.failures:
        click.echo(f"{failure.status}: {failure.reason}", err=True)
    if found.figures:
        click.echo(json.dumps({"technique": technique, **found.figures}))
    sys.exit(found.exit_code)
