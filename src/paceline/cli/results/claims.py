"""``paceline claims``: the ledger of papers with what is known of their claims."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from paceline.analysis.claims.headlines import LedgerRow, conforming
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.claims.verdicts import REFUTED
from paceline.base.errors import EXIT_OK, EXIT_REGRESSION
from paceline.cli.options import json_option, print_json, results_option, warn, wide_option
from paceline.report.claims.headlines import null_text
from paceline.report.claims.page import claims_page
from paceline.report.claims.premises import SETTLES
from paceline.report.claims.text import OWN_BOUND, found_text, sides
from paceline.report.tables.terminal import laid_out, terminal_width
from paceline.spec.ledger.premises import SettledBy
from paceline.workflows.claiming import claim_counts, claim_facts, current_ledger, headline_facts


def list_options(command: Any) -> Any:
    """Add what chooses and writes rows of the ledger."""
    command = wide_option(json_option(results_option(command)))
    command = click.option(
        "--null", "nulls", is_flag=True,
        help="Show each claim that quotes a paper beside its arm without the mechanism.",
    )(command)  # fmt: skip
    command = click.option(
        "--power", "powers", is_flag=True,
        help="Show for each claim the effect that its launches resolve, beside what it needs.",
    )(command)  # fmt: skip
    command = click.option("--verdict", default=None, help="Show only claims with this verdict.")(command)
    return click.option("--family", default=None, help="Show only claims of this family.")(command)


@click.group("claims", invoke_without_command=True)
@list_options
@click.pass_context
def claims(context: click.Context, /, **chosen: Any) -> None:
    """List the papers' claims with their verdicts, or check them; the default command is ``list``."""
    if context.invoked_subcommand is None:
        context.invoke(list_claims, **chosen)
    elif any(chosen.values()):
        raise click.UsageError("options stand behind the command: paceline claims COMMAND [OPTIONS]")


@claims.command("list")
@list_options
def list_claims(
    family: str | None,
    verdict: str | None,
    nulls: bool,
    powers: bool,
    wide: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """List all papers, each with a verdict or the reason why it has none."""
    rows, counts, measured = current_ledger(results, family=family, verdict=verdict, say=warn)
    warnings = [] if rows else [f"no paper of {family or 'any family'} is '{verdict}'"]
    for text in warnings:
        warn(text)
    bounds = [c for c in measured if c.paper is None]
    if as_json:
        data = {
            "counts": counts,
            "claims": claim_counts(measured),
            "papers": [_plain_row(r) for r in rows],
        }
        print_json({**data, "bounds": [claim_facts(c) for c in bounds], "warnings": warnings})
        return
    if nulls or powers:
        click.echo((_null_table if nulls else _power_table)(measured, wide=wide))
        return
    table = [(r.paper.slug, r.paper.family, str(r.paper.tier), r.verdict, _why(r)) for r in rows]
    headers = ("paper", "family", "tier", "verdict", "why, or what it needs")
    click.echo(_laid_out(headers, table, wide=wide, leaving=("tier", "family")))
    click.echo(", ".join(f"{n} {name}" for name, n in counts.items()))
    told = ", ".join(f"{n} {SETTLES[kind]}" for kind, n in _settling(measured).items())
    click.echo(f"what would settle claims: {told}" if told else "every claim is settled")
    if bounds:
        told = ", ".join(f"{n} {name}" for name, n in sorted(Counter(c.verdict for c in bounds).items()))
        click.echo(f"bounds of the suites' own: {told} (paceline claims check)")


@claims.command("check")
@wide_option
@results_option
@click.option(
    "--format", "style", type=click.Choice(("table", "md")), default="table", show_default=True,
    help="A table of all claims, or a Markdown page of those that were measured.",
)  # fmt: skip
@json_option
def check(wide: bool, results: Path | None, style: str, as_json: bool) -> None:
    """Evaluate every claim on the stored runs; exit 1 when one was refuted."""
    if as_json and style == "md":
        raise click.UsageError("--json and --format md ask for two texts; give one of them")
    papers, _, found = current_ledger(results, say=warn)
    if as_json:
        print_json([claim_facts(c) for c in found])
    elif style == "md":
        given = f" --results {results}" if results else ""
        command = f"paceline claims check{given} --format md"
        click.echo(claims_page(found, papers, command=command), nl=False)
    else:
        rows = [
            (c.paper or OWN_BOUND, c.claim_id, c.metric, sides(c), c.expectation, _found(c), c.verdict)
            for c in found
        ]
        headers = ("paper", "claim", "metric", "measured", "expected", "found", "verdict")
        click.echo(_laid_out(headers, rows, wide=wide, leaving=("claim", "paper")))
    refuted = any(c.verdict in REFUTED for c in found)
    sys.exit(EXIT_REGRESSION if refuted else EXIT_OK)


def _null_table(claims: Iterable[ClaimResult], *, wide: bool) -> str:
    """Return the claims that quote a paper, each with what its arm without the mechanism came to."""
    shown = [c for c in claims if (c.reproduces or c.against) and c.worst is not None]
    rows = [(c.paper or "", c.claim_id, c.expectation, found_text(c), null_text(c), c.verdict) for c in shown]
    headers = ("paper", "claim", "expected", "found", "without the mechanism", "verdict")
    return _laid_out(headers, rows, wide=wide, leaving=("expected", "paper"))


def _power_table(claims: Iterable[ClaimResult], *, wide: bool) -> str:
    """Return the claims whose launches have a spread, each with what they resolve; those that could not tell first."""
    shown = sorted((c for c in claims if c.power), key=lambda c: bool(c.power and c.power.tells))
    rows = [
        (c.paper or OWN_BOUND, c.claim_id, c.expectation, found_text(c), c.power.text, c.verdict)
        for c in shown
        if c.power
    ]
    headers = ("paper", "claim", "expected", "found", "what the design resolves", "verdict")
    return _laid_out(headers, rows, wide=wide, leaving=("expected", "paper"))


def _settling(claims: Iterable[ClaimResult]) -> dict[SettledBy, int]:
    counts = Counter(kind for claim in claims for kind in claim.settled_by)
    return {kind: counts[kind] for kind in SETTLES if counts[kind]}


def _found(claim: ClaimResult) -> str:
    return found_text(claim) if claim.worst is not None else claim.reason or ""


def _why(row: LedgerRow) -> str:
    tested = [f"{h.headline.says}: {h.verdict}" for h in row.headlines if h.tested]
    return "; ".join(filter(None, (*tested, row.reason, conforming(row.results))))


def _laid_out(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool, leaving: Sequence[str]
) -> str:
    """Return a table as wide as the terminal, and what it leaves out."""
    text, left_out = laid_out(headers, rows, width=None if wide else terminal_width(), leaving=leaving)
    return f"{text}\n  --wide shows {', '.join(left_out)}" if left_out else text


def _plain_row(row: LedgerRow) -> dict[str, Any]:
    return {
        **row.paper.model_dump(mode="json", exclude_none=True),
        "verdict": row.verdict,
        "reason": row.reason,
        "settled_by": list(row.settled_by),
        "headlines": [headline_facts(h) for h in row.headlines],
        "claims": [claim_facts(r) for r in row.results],
    }
