"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from paceline.base.aliases import OPTIONS
from paceline.base.units import parse_duration
from paceline.spec.suites.launches import Launches, asked_launches
from paceline.workflows.stores import RESULTS_VARIABLE

Command = TypeVar("Command", bound=Callable[..., Any])


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return what adds several options to a command; the last is shown first."""

    def add(command: Command) -> Command:
        for option in options:
            command = option(command)
        return command

    return add


def results_option(command: Command) -> Command:
    """Add ``--results DIR``."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path),
        default=None,
        help=f"Store of record files [default: ${RESULTS_VARIABLE} or results/local].",
    )(command)


def published_option(command: Command) -> Command:
    """Add ``--published``."""
    return click.option(
        "--published",
        is_flag=True,
        help="Also the runs that the checkout publishes: they are of other machines, stand behind one's own, and are "
        "marked.",
    )(command)


def wide_option(command: Command) -> Command:
    """Add ``--wide``, which shows what tables and estimates leave out."""
    return click.option(
        "--wide",
        "-v",
        is_flag=True,
        help="Show all columns, the launches that a verdict still needs, and time limits.",
    )(command)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def print_json(data: Any) -> None:
    """Print plain data as indented JSON with sorted keys; what is not a finite number is null."""
    text = json.dumps(
        _plain(data), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str
    )
    click.echo(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _plain(data: Any) -> Any:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    return [_plain(value) for value in data] if isinstance(data, list | tuple) else data


def margin_option(text: str) -> Callable[[Command], Command]:
    """Add ``--margin NUMBER``, finite and not negative."""

    def check(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
        if value is not None and not 0 <= value < math.inf:
            raise click.BadParameter(f"'{value:g}' is not a number of at least 0, such as 0.02")
        return value

    return click.option("--margin", type=float, default=None, callback=check, help=text)


def launch_options(command: Command) -> Command:
    """Add ``--launches N`` or ``FIRST..MOST``, and ``--budget DURATION``."""

    def launches(context: click.Context, parameter: click.Parameter, value: str | None) -> Launches | None:
        try:
            return asked_launches(value, None)[0]
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    def budget(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        chosen = context.params.get("launches")
        try:
            return asked_launches(chosen.text if chosen is not None else None, value)[1]
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    number = click.option(
        "--launches",
        metavar="N|FIRST..MOST",
        default=None,
        callback=launches,
        is_eager=True,
        help="Launches of every point. A range adds launches until all comparisons of the point are decided.",
    )
    time = click.option(
        "--budget",
        "budget_s",
        metavar="DURATION",
        default=None,
        callback=budget,
        help="Measure until all comparisons are decided; start no launch after this time.",
    )
    return number(time(command))


def machine_options(command: Command) -> Command:
    """Add ``--wait DURATION`` and ``--allow-concurrent``: what a run does when another one has the machine."""

    def check(context: click.Context, parameter: click.Parameter, value: str) -> float:
        try:
            return parse_duration(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    wait = click.option(
        "--wait",
        "wait_s",
        metavar="DURATION",
        default="10min",
        show_default=True,
        callback=check,
        help="Wait this long for another run on this machine to end; then exit with code 3.",
    )
    concurrent = renamed_option(
        "--allow-concurrent", is_flag=True, help="Measure even while another run does; the record says so."
    )
    return wait(concurrent(command))


def renamed_option(name: str, **settings: Any) -> Callable[[Command], Command]:
    """Add an option whose name was changed: the old one means the same, is not shown, and warns.

    Args:
        name: The option by its name of today, one of ``paceline.base.aliases.OPTIONS``.
        settings: Of ``click.option``, without a callback.
    """
    old = OPTIONS.first(name)
    assert old != name, f"{name} was never renamed"

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            warn(f"the option '{old}' is called '{name}' now")
            context.meta[old] = value

    def either(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        return value or context.meta.get(old, value)

    # what stands on the command line is read first, so that `either` finds what `keep` has kept
    earlier = click.option(
        old,
        hidden=True,
        expose_value=False,
        callback=keep,
        is_flag=bool(settings.get("is_flag")),
        help=f"The earlier name of {name}.",
    )
    today = click.option(name, callback=either, **settings)
    return lambda command: today(earlier(command))


def warn(text: str) -> None:
    """Print a warning beside the output."""
    click.echo(f"note: {text}", err=True)
