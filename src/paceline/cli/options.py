"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from paceline.base.aliases import METRICS, OPTIONS, SUITES
from paceline.base.errors import UserError
from paceline.base.units import parse_duration
from paceline.spec import content
from paceline.spec.launches import Launches, parse_launches
from paceline.spec.suite import Suite, load_suite

Command = TypeVar("Command", bound=Callable[..., Any])

RESULTS_VARIABLE = "PACELINE_RESULTS"


def default_results() -> Path:
    """Return the store to write to: ``PACELINE_RESULTS``, else ``results/local`` of the checkout or this folder."""
    given = os.environ.get(RESULTS_VARIABLE)
    if given:
        return Path(given)
    root = content.checkout_root() or Path.cwd()
    return root / "results" / "local"


def published_results() -> Path | None:
    """Return the checkout's tracked reference runs, if there are any."""
    root = content.checkout_root()
    folder = root / "results" / "published" if root else None
    return folder if folder is not None and folder.is_dir() else None


def results_option(command: Command) -> Command:
    """Add ``--results DIR``."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path),
        default=None,
        help=f"Store of record files [default: ${RESULTS_VARIABLE} or results/local].",
    )(command)


def wide_option(command: Command) -> Command:
    """Add ``--wide``, which shows what tables and estimates leave out."""
    return click.option(
        "--wide",
        "-v",
        is_flag=True,
        help="Show all columns, launches that a verdict lacks, and limits of time.",
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
            found = parse_launches(value) if value is not None else None
            return found.until_decided() if found is not None and found.most is not None else found
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    def budget(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
        try:
            seconds = parse_duration(value) if value is not None else None
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if seconds == 0:
            raise click.BadParameter("no time at all")
        fixed = context.params.get("launches")
        if seconds is not None and fixed is not None and fixed.most is None:
            raise click.BadParameter(
                f"--launches {fixed.first} fixes their number; give a range such as --launches {fixed.first}..60"
            )
        return seconds

    number = click.option(
        "--launches",
        metavar="N|FIRST..MOST",
        default=None,
        callback=launches,
        is_eager=True,
        help="Launches of every point; a range: as many as its comparisons need to be decided.",
    )
    time = click.option(
        "--budget",
        "budget_s",
        metavar="DURATION",
        default=None,
        callback=budget,
        help="Measure until decided, and start no launch after this time.",
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
        help="How long to wait while another run measures on this machine; then exit code 3.",
    )
    concurrent = renamed_option(
        "--allow-concurrent", is_flag=True, help="Measure although another run does; the record says so."
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


def expand_suites(names: Sequence[str], extra: Sequence[Path] = ()) -> list[Suite]:
    """Load suites given by file, by name, or by family (``collectives``: all of its suites).

    Raises:
        UserError: An unknown name, or mistakes in a file.
    """
    known = content.suite_files()
    paths: list[Path] = []
    for name in names:
        in_family = [p for n, p in known.items() if n.startswith(f"{name}/")]
        paths += in_family if in_family and name not in known else [content.find_suite(name)]
    unique = list(dict.fromkeys(p.resolve() for p in paths))
    if not unique:
        raise UserError("no suite given", fix="paceline list suites")
    loaded = [load_suite(path, extra=extra) for path in unique]
    for name in names:
        if name in SUITES.table:
            warn(f"the suite '{name}' is called '{SUITES.today(name)}' now")
    for suite in loaded:
        for note in suite.located.notes:
            warn(note)
    sources = {s.path: s for suite in loaded for s in suite.sources.values() if "options" in s.lines}
    for source in sources.values():
        warn(source.repeated_options)
    return loaded


def parse_filters(items: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Read ``key=value`` filters, of several values as ``key=one,other``."""
    pairs = []
    for item in items:
        key, separator, value = item.partition("=")
        values = value.split(",")
        if not separator or not key or not all(values):
            raise UserError(
                f"'{item}' is not a filter", where="--filter", expected="key=value, or key=one,other"
            )
        pairs += [(key, each) for each in values]
    return tuple(pairs)


def metrics_today(names: Sequence[str]) -> tuple[str, ...]:
    """Return metrics that somebody named as they are called today; each old name leaves a note."""
    for name in names:
        if name in METRICS.table:
            warn(f"the metric '{name}' is called '{METRICS.today(name)}' now")
    return tuple(METRICS.today(name) for name in names)


def split_names(items: Sequence[str]) -> tuple[str, ...]:
    """Read names given one by one or separated by commas."""
    return tuple(name for item in items for name in item.split(",") if name)
