"""``paceline summary``."""

from __future__ import annotations

from pathlib import Path

import click

from paceline.base.errors import UserError
from paceline.cli.options import json_option, print_json, published_option, results_option, warn
from paceline.report.summaries.decided import (
    board_points,
    newest_points,
    on_one_processor,
    summarise,
    summary_facts,
    summary_lines,
)
from paceline.report.tables.terminal import terminal_width, wrapped
from paceline.workflows.choosing import expand_suites
from paceline.workflows.stores import load_kept, published_ids, stores


@click.command("summary")
@click.argument("suites", nargs=-1)
@click.option(
    "--all-hosts",
    is_flag=True,
    help="Count a comparison once for every kind of processor that measured it [default: the newest measurement].",
)
@published_option
@results_option
@json_option
def summary(
    suites: tuple[str, ...], all_hosts: bool, published: bool, results: Path | None, as_json: bool
) -> None:
    """Summarise what has been decided, the largest effects, what could not be told apart, and what to try next.

    SUITES are files, names or families; the newest run of each is used. Default: the points of the leaderboard, on
    processors the newest measurement of each.
    """
    if suites:
        names = [suite.name for suite in expand_suites(suites, say=warn)]
        points = newest_points(stores(results, published=published), names)
        if not points:
            raise UserError(f"no run measured {', '.join(names)}", fix=f"paceline run {' '.join(suites)}")
    else:
        points = board_points(load_kept(results, published=published, say=warn).records)
        if not all_hosts:
            points = on_one_processor(points)
    found = summarise(points, published=published_ids() if published else frozenset())
    if as_json:
        print_json(summary_facts(found))
        return
    for line in summary_lines(found):
        text = line.lstrip()
        click.echo(wrapped(text, terminal_width(), indent=line[: len(line) - len(text)]))
