"""Options that choose points of suites and where they run; commands that measure suites share them."""

from __future__ import annotations

from pathlib import Path

import click

from paceline.cli.options import together
from paceline.spec.suites.grammar import TIERS
from paceline.workflows.choosing import parse_filters

choice_options = together(
    click.option(
        "--seed",
        type=int,
        default=None,
        help="Let all inputs and orders follow from this number; grade C at best [default: new draws].",
    ),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="KEY=VALUE,…",
        callback=lambda context, parameter, items: parse_filters(items),
        help="Measure only the points whose KEY has one of the VALUEs.",
    ),
    click.option(
        "--technique",
        "user_files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A Python file with a technique of your own.",
    ),
    click.option("--runner", default="local-cpu", show_default=True, help="Runner profile."),
    click.option(
        "--tier",
        type=click.Choice(TIERS),
        default="standard",
        show_default=True,
        help="How much of each suite to measure.",
    ),
)
