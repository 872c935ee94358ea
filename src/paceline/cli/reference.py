"""The reference pages in ``docs/``, written from the program itself: ``python -m paceline.cli.reference docs``."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from paceline.base.errors import EXIT_CODES
from paceline.base.families.family import family_names, load_family
from paceline.cli import COMMANDS
from paceline.cli.metric_tables import filled
from paceline.cli.operation_pages import operations_page
from paceline.report.boards.constants import constants_page
from paceline.spec import content
from paceline.spec.profiles.profile import runner_schema
from paceline.spec.suites.grammar import suite_schema
from paceline.workflows.nightly.config import nightly_schema

VARIABLES: Mapping[str, str] = {
    "PACELINE_RESULTS": "store of record files, instead of `results/local`",
    "PACELINE_STATE": "the host's lease and quarantine, one folder for all users, instead of `/var/tmp/paceline`",
    "PACELINE_CONTENT": "further folders with `suites/`, `runners/`, `baselines/`, separated by `:`",
    "PACELINE_RECORD_CACHE": "what was read of records, instead of `~/.cache/paceline/records`; empty: nothing is kept",
}


def command_line() -> str:
    """Return docs/cli.md: every command with its options, the exit codes, and the environment variables."""
    lines = [
        "# Command line",
        "",
        "This page lists every command with its options, the exit codes and the environment variables.",
        "It is for users of the command line; `paceline COMMAND --help` prints the same.",
        "",
    ]
    for name, (target, _) in COMMANDS.items():
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(f"paceline.cli.{module}"), attribute)
        lines += _command(name, command)
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {text} |" for code, text in EXIT_CODES.items()]
    lines += ["", "## Environment variables", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in VARIABLES.items()]
    return "\n".join(lines) + "\n"


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    arguments = [p.make_metavar(context) for p in command.params if isinstance(p, click.Argument)]
    yield f"## `{' '.join(['paceline', name, *arguments])}`"
    yield re.sub(r"\n[ ]+", "\n", (command.help or "").strip()) + "\n"
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    if options:
        yield "| option | |\n|---|---|"
        for option in options:
            names = ", ".join(f"`{o}`" for o in option.opts)
            yield f"| {names} | {(option.help or '').rstrip('.')}{_choices(option)} |"
        yield ""
    if isinstance(command, click.Group):
        for child, subcommand in command.commands.items():
            yield from _command(f"{name} {child}", subcommand)


def _choices(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return f" ({', '.join(str(c) for c in option.type.choices)})"
    return ""


def grammar() -> str:
    """Return docs/suites.md: every key of suites and runner profiles."""
    lines = [
        "# Suites, runners and nightly files",
        "",
        "A suite says what is measured, a runner profile where, a nightly file which of them every night.",
        "`paceline schema suite`, `runner` and `nightly` print JSON Schemas for editors;",
        "`paceline validate` names the line and key of every mistake.",
        "Sizes, rates and durations are written with units: `4KiB`, `100mbit`, `5ms`.",
        "",
    ]
    for title, schema in (
        ("Suite", suite_schema()),
        ("Runner", runner_schema()),
        ("Nightly file", nightly_schema()),
    ):
        lines += _model(title, schema)
        for name, part in sorted(schema.get("$defs", {}).items()):
            lines += _model(f"{title} · {name}", part)
        if title == "Suite":
            lines += _quantities()
    return "\n".join(lines).rstrip() + "\n"


def _model(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        return
    yield f"## {title}"
    yield " ".join(schema.get("description", "").split()) + "\n"
    required = set(schema.get("required", ()))
    yield "| key | | default |\n|---|---|---|"
    for key, value in schema["properties"].items():
        shown = f"`{value.get('default')}`" if value.get("default") != "" else "empty"
        default = "required" if key in required else shown if "default" in value else ""
        text = " ".join(str(value.get("description", "")).split()).replace("|", "\\|")
        yield f"| `{key}` | {text} | {default} |"
    yield ""


def _quantities() -> Iterator[str]:
    yield "## Suite · quantities of premises"
    yield "What a premise may ask of a launch beside metrics and parameters; computed from its record, never stored.\n"
    yield "| family | quantity | unit | |\n|---|---|---|---|"
    for family in map(load_family, family_names()):
        for quantity in family.quantities:
            yield f"| {family.name} | `{quantity.name}` | {quantity.unit} | {quantity.doc} |"
    yield ""


def constants() -> str:
    """Return docs/constants.md: constants of all shipped techniques beside their authors'."""
    sources = (s for family in family_names() for s in content.techniques(family).values())
    return constants_page(sources, command="python -m paceline.cli.reference docs")


PAGES = {
    "cli.md": command_line,
    "suites.md": grammar,
    "constants.md": constants,
    "operations.md": operations_page,
}


def main(folder: Path) -> None:
    """Write all pages into a folder, and fill in the tables of metrics.md, which people write."""
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")
    metrics = folder / "metrics.md"
    metrics.write_text(filled(metrics.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
