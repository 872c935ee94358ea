"""``paceline once``: one technique at one point, as a program that prints its figures."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from paceline.cli.measuring.choice import choice_options
from paceline.cli.options import warn
from paceline.workflows.programs.once import perform_one, prepare_one


@click.command("once")
@click.argument("suite")
@click.argument("technique")
@choice_options
def once(suite: str, technique: str, **choice: Any) -> None:
    """Measure one technique at one point once, and print its figures as a line of JSON.

    SUITE is a file or a name, TECHNIQUE what the suite calls it. Nothing is recorded: it is a program that stands
    beside one of yours, in 'paceline time' or in a suite of programs, which measure both in turn. Every figure is in
    its metric's unit (paceline show METRIC).
    """
    prepared = prepare_one(suite, technique, say=warn, **choice)
    found = perform_one(prepared, say=warn)
    for failure in found.failures:
        click.echo(f"{failure.status}: {failure.reason}", err=True)
    if found.figures:
        click.echo(json.dumps({"technique": technique, **found.figures}))
    sys.exit(found.exit_code)
