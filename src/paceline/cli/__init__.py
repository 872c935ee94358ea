"""The command line. Commands are imported when they are called, so that ``--help`` stays instant."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
import traceback
from contextlib import suppress
from typing import Any

import click

from paceline import __version__
from paceline.base.errors import (
    EXIT_CODES,
    EXIT_FAULT,
    EXIT_INFRASTRUCTURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREAD,
    EXIT_USAGE,
    PacelineError,
)
from paceline.base.terminal import guard_streams

RARELY = (100_000, 50, 1000)
"""Thresholds of the garbage collector: commands read much that stays, and end. Looking took half of their time."""

COMMANDS: dict[str, tuple[str, str]] = {
    "list": (
        "inspection.inspect:list_things",
        "List suites, techniques, runners, families, metrics or papers.",
    ),
    "show": (
        "inspection.inspect:show",
        "Show one suite, technique, operation, runner, paper, metric, run or record.",
    ),
    "validate": (
        "inspection.inspect:validate",
        "Check suites, runners, techniques and the ledger, without torch.",
    ),
    "check": (
        "authoring.check:check",
        "Check that a technique conforms: that it computes and sends what it says, at small sizes.",
    ),
    "schema": (
        "inspection.inspect:schema",
        "Print the JSON Schema of suites, runners, nightly files or records.",
    ),
    "plan": (
        "measuring.run:plan_command",
        "Print what a run would measure and skip, and how long it would take.",
    ),
    "run": ("measuring.run:run", "Measure suites and record the result."),
    "time": ("measuring.timing:time_command", "Time any commands against each other, without a suite file."),
    "once": (
        "measuring.once:once",
        "Measure one technique at one point once, as a program that prints its figures.",
    ),
    "kernel": (
        "measuring.kernel:kernel",
        "Judge and time kernels in KernelBench's or flashinfer-bench's layout.",
    ),
    "load": ("measuring.load:load", "Put a server of the OpenAI interface under load, or two in turn."),
    "evaluate": (
        "measuring.evaluate:evaluate",
        "Evaluate a model of one's own on questions with answers, by several methods.",
    ),
    "samples": (
        "results.samples:samples",
        "Compare logs of samples of the same items, also of other harnesses.",
    ),
    "doctor": ("inspection.doctor:doctor", "Report what this machine can run, and how to enable the rest."),
    "calibrate": (
        "measuring.calibrate:calibrate",
        "Measure the harness's own false alarms, power and overhead.",
    ),
    "summary": ("results.summary:summary", "Summarise what has been decided, and what to try next."),
    "compare": ("results.compare:compare", "Compare techniques in a run, or two runs."),
    "reproduce": ("reproducing.reproduce:reproduce", "Measure a record again and compare the two."),
    "gate": (
        "results.compare:gate",
        "Compare a run with the baseline run; the exit code reports regressions.",
    ),
    "nightly": (
        "measuring.nightly:nightly",
        "Measure the suites that are due, raise alarms on regressions, publish the site.",
    ),
    "first-contact": (
        "measuring.first_contact:first_contact",
        "Measure on a new machine what tells most first, step by step.",
    ),
    "trend": ("results.trend:trend", "List the series that changed over the nights, and since when."),
    "claims": ("results.claims:claims", "List the papers' claims with their verdicts, or check them."),
    "site": ("publishing.site:site", "Build or open the static leaderboard."),
    "export": ("publishing.exchange:export", "Write results in other tools' formats."),
    "import": ("publishing.exchange:import_", "Read results of other tools into the store."),
    "store": ("results.store:store", "List, verify, repair, merge, compress, compact or correct records."),
    "job": ("measuring.job:job", "Make a job folder for another machine, or collect its results."),
    "new": ("authoring.new:new", "Create a suite or a technique from a working example."),
}
"""Command → where it is implemented (below ``paceline.cli``) and its line in the overview."""


class UnreadError(Exception):
    """Whoever read the output went away; click would make the exit code of a regression of it."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments, which prints what ``--help`` and ``--version`` ask for."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            raise UnreadError from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise UnreadError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f"paceline.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown one."""
        from paceline.base.errors import nearest  # noqa: PLC0415 - only on the way to an error

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            match = nearest(args[0], COMMANDS)
            hint = f" — did you mean '{match}'?" if match else ""
            ctx.fail(f"no such command '{args[0]}'{hint}")
        return super().resolve_command(ctx, args)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What a full disk, a used-up quota and a read-only file system say."""
EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code}  {text}" for code, text in EXIT_CODES.items())


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="paceline")
def application() -> None:
    """Reproducible benchmarks for parallel and distributed machine-learning techniques."""


def main() -> None:
    """Run the command line, and end with a documented exit code whatever happens.

    Our own errors are printed without a traceback. What nobody expected keeps its traceback and has a code of its own:
    Python's usual 1 would tell a script that something became slower.
    """
    guard_streams()
    gc.set_threshold(*RARELY)
    try:
        code = application(standalone_mode=False)
        sys.stdout.flush()
    except PacelineError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = EXIT_INTERRUPTED
    except (UnreadError, BrokenPipeError):
        _write_no_more()
        code = EXIT_UNREAD
    except MemoryError:
        click.echo("error: out of memory", err=True)
        code = EXIT_INFRASTRUCTURE
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            click.echo(f"error: {error.filename or 'the output'}: {error.strerror}", err=True)
            _write_no_more()
            code = EXIT_INFRASTRUCTURE
        else:
            traceback.print_exc()
            click.echo(_fault(error), err=True)
            code = EXIT_FAULT
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _write_no_more() -> None:
    """Let what is left of the output go nowhere, so that the end of the process does not try it again."""
    with suppress(OSError):
        sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _fault(error: Exception) -> str:
    """Say that it is not the user who is wrong."""
    kind = type(error).__name__
    return (
        f"error: this is a fault of paceline {__version__}, not of what it was given: {kind}: {error}\n"
        "  nothing was decided by it: no regression was found, and none was ruled out\n"
        "  fix: report the command and the traceback above"
    )


if __name__ == "__main__":
    main()
