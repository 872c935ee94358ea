"""``paceline doctor``: what this machine can run, what was left behind on it, which runners are left alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK, UserError
from paceline.cli.options import json_option, print_json, renamed_option, results_option
from paceline.workflows.stores import default_results

if TYPE_CHECKING:
    from paceline.records.store.proofs import Proof


@click.command("doctor")
@click.option("--clean", is_flag=True, help="Remove the leftovers of dead runs from this host.")
@click.option("--dry-run", is_flag=True, help="With --clean: list what would be removed, and remove nothing.")
@click.option(
    "--prove",
    is_flag=True,
    help="Prove in five minutes what works: a kernel, a collective, training steps, requests to the engine.",
)
@renamed_option("--unquarantine", metavar="RUNNER", default=None, help="Take a runner out of quarantine.")
@results_option
@json_option
def doctor(
    clean: bool, dry_run: bool, prove: bool, unquarantine: str | None, results: Path | None, as_json: bool
) -> None:
    """Report what this machine can run: one line per capability, with the command that enables it.

    With --prove, say what the machine is (devices, links, versions, limits; nothing is changed), and measure a small
    point of each kind on the accelerators and on the processor. The report goes to doctor/ in the store, and is shown
    on the site's page of hardware. Exit code 3: something failed; what is not there is `not run`, which is no failure.
    """
    if prove and (clean or unquarantine is not None):
        raise UserError("--prove stands alone", where="--prove", fix="paceline doctor --prove")
    if prove:
        sys.exit(_prove(results or default_results(), as_json=as_json))
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


def _prove(store: Path, *, as_json: bool) -> int:
    """Prove what works, tell each proof as it ends, and keep the report; return the exit code."""
    from paceline.drivers.machine import portrait  # noqa: PLC0415 - starts a process to look at torch
    from paceline.records.store.proofs import write_report  # noqa: PLC0415 - pydantic only where it is needed
    from paceline.workflows.proving import facts_of, prove  # noqa: PLC0415 - as above

    found = portrait.look()
    if not as_json:
        for name, text in facts_of(found).items():
            click.echo(f"{name}: {text}")
        click.echo(f"{found.topology}\n" if found.topology else "")
    report = prove(say=(lambda proof: None) if as_json else _tell, found=found)
    path = write_report(store, report)
    if as_json:
        print_json({**report.model_dump(), "path": str(path)})
    else:
        count = sum(proof.status == "ok" for proof in report.proofs)
        click.echo(f"{count} of {len(report.proofs)} proved in {report.seconds:.0f} s; report {path}")
    return EXIT_INFRASTRUCTURE if report.failed else EXIT_OK


def _tell(proof: Proof) -> None:
    took = f" ({proof.seconds:.1f} s)" if proof.seconds is not None else ""
    click.echo(f"{proof.status}: {proof.name}: {proof.detail}{took}")
    if proof.status != "ok" and proof.fix:
        click.echo(f"  fix: {proof.fix}")


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
        click.echo(number_of(len(found), "leftover") if found else "nothing was left behind")
    sys.exit(EXIT_INFRASTRUCTURE if failed else EXIT_OK)
