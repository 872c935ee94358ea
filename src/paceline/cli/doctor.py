"""``paceline doctor``: what this machine can run, what was left behind on it, which runners are left alone."""

from __future__ import annotations

import sys

import click

from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK
from paceline.cli.options import json_option, print_json, renamed_option


@click.command("doctor")
@click.option("--clean", is_flag=True, help="Remove the leftovers of dead runs from this host.")
@click.option("--dry-run", is_flag=True, help="With --clean: list what would be removed, and remove nothing.")
@renamed_option("--unquarantine", metavar="RUNNER", default=None, help="Take a runner out of quarantine.")
@json_option
def doctor(clean: bool, dry_run: bool, unquarantine: str | None, as_json: bool) -> None:
    """Report what this machine can run: one line per capability, with the command that enables it."""
    if unquarantine is not None:
        from paceline.drivers.machine.quarantine import end_quarantine  # noqa: PLC0415 - only what is asked for

        end_quarantine(unquarantine)
        click.echo(f"runner {unquarantine} is used again")
    elif clean:
        _clean(dry_run=dry_run, as_json=as_json)
    else:
        _examine(as_json=as_json)


def _examine(*, as_json: bool) -> None:
    from paceline.drivers.capabilities import examine  # noqa: PLC0415 - starts a process to look at torch

    found = examine()
    if as_json:
        print_json([{"name": c.name, "ok": c.ok, "detail": c.detail, "fix": c.fix} for c in found])
        return
    width = max(len(c.name) for c in found)
    for capability in found:
        mark = "yes" if capability.ok else "no "
        click.echo(f"{mark}  {capability.name:<{width}}  {capability.detail}")
        if not capability.ok and capability.fix:
            click.echo(f"     {'':<{width}}  enable: {capability.fix}")


def _clean(*, dry_run: bool, as_json: bool) -> None:
    """Remove leftovers; what resists is named, with exit code 3."""
    from paceline.drivers.machine.leftovers import find_leftovers  # noqa: PLC0415 - only what is asked for

    found = find_leftovers()
    failed: dict[str, str] = {}
    for leftover in () if dry_run else found:
        try:
            leftover.remove()
        except OSError as error:
            failed[leftover.name] = str(error)
    if as_json:
        items = [{"kind": x.kind, "name": x.name, "why": x.why, "failed": failed.get(x.name)} for x in found]
        print_json({"removed": not dry_run, "leftovers": items})
    else:
        for x in found:
            said = "would remove" if dry_run else "could not remove" if x.name in failed else "removed"
            click.echo(f"{said} {x.kind} {x.name}: {failed.get(x.name, x.why)}")
        click.echo(f"{len(found)} leftovers" if found else "nothing was left behind")
    sys.exit(EXIT_INFRASTRUCTURE if failed else EXIT_OK)
