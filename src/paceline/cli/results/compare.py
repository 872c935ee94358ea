"""``paceline compare`` and ``paceline gate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from paceline.base.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_REGRESSION, UserError
from paceline.cli.options import (
    json_option,
    margin_option,
    print_json,
    results_option,
    warn,
    wide_option,
)
from paceline.records.identity import utc
from paceline.records.store.lookup import find_run
from paceline.report.runs.comparison import difference_table
from paceline.report.tables.results import Table, comparison_table, marked, run_comparison_table, suite_tables
from paceline.report.words.stops import stop_lines
from paceline.workflows.choosing import metrics_today, split_names
from paceline.workflows.comparing import (
    compare_one,
    compare_two,
    comparison_facts,
    run_comparison_facts,
)
from paceline.workflows.stores import load_stores, stores_of

FORMATS = ("table", "md", "json", "html")


@click.command("compare")
@click.argument("a", default="latest")
@click.argument("b", required=False)
@click.option(
    "--by",
    type=click.Choice(("technique", "run")),
    default=None,
    help="Whether A and B are techniques or runs.",
)
@click.option(
    "--run",
    "run_name",
    default="latest",
    show_default=True,
    help="With --by technique: the run that holds both.",
)
@click.option("--metrics", multiple=True, help="Metrics to compare [default: those that the suites name].")
@margin_option("Equivalence margin for every metric.")
@click.option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@click.option("--force", is_flag=True, help="Compare runs that are not comparable; the output is marked.")
@wide_option
@results_option
@json_option
def compare(
    a: str,
    b: str | None,
    by: str | None,
    run_name: str,
    metrics: tuple[str, ...],
    margin: float | None,
    style: str,
    force: bool,
    wide: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """Compare techniques in run A with their baselines, two runs A and B, or techniques A and B of one run.

    Techniques of one run share launches, and their intervals are computed over paired launches. Two runs were measured
    at different times, and the table says so; a second table lists their other differences (not with --format json).
    The newest run is one's own; a published one is named by its id.
    """
    if as_json and style not in ("table", "json"):
        raise click.UsageError(f"--json and --format {style} ask for two texts; give one of them")
    _refuse_idle_options(b, by, force=force)
    style = "json" if as_json else style
    chosen: dict[str, Any] = {
        "metrics": metrics_today(split_names(metrics), say=warn), "margin": margin, "say": warn
    }  # fmt: skip
    data: list[dict[str, Any]]
    ends: list[str] = []
    if b is None:
        record = find_run(stores_of(results, a), a)
        points, found = compare_one(record, **chosen)
        # a board ranks by its suite's metric: what was asked for is laid out one comparison a row
        asked = chosen["metrics"]
        tables = [comparison_table(found, wide=wide)] if asked else suite_tables(points, found, wide=wide)
        data = [comparison_facts(c) for c in found]
        ends = stop_lines(record)
    elif by == "technique":
        _, found = compare_one(
            find_run(stores_of(results, run_name), run_name), baseline=b, technique=a, **chosen
        )
        tables, data = [comparison_table(found, wide=wide)], [comparison_facts(c) for c in found]
    else:
        left, right = (find_run(stores_of(results, name), name) for name in (a, b))
        series, reason = compare_two(left, right, force=force, **chosen)
        table = run_comparison_table(series, left.run_id[:13], right.run_id[:13], wide=wide)
        tables = [marked(table, reason), difference_table(left.run, right.run)]
        data = [run_comparison_facts(c) for c in series]
    _print(tables, data, style, wide=wide)
    if style == "table":
        for line in ends:
            click.echo(line)


def _refuse_idle_options(b: str | None, by: str | None, *, force: bool) -> None:
    """Refuse options that would change nothing of what is compared."""
    source = click.get_current_context().get_parameter_source("run_name")
    if source is ParameterSource.COMMANDLINE and by != "technique":
        raise UserError(
            "the run is the one of techniques A and B",
            where="--run",
            fix="paceline compare A B --by technique",
        )
    if by is not None and b is None:
        raise UserError(f"one {by} is not compared with another", where="--by", expected="A and B")
    if force and (b is None or by == "technique"):
        raise UserError(
            "one run can always be compared with itself", where="--force", expected="runs A and B"
        )


def _print(tables: Sequence[Table], data: list[dict[str, Any]], style: str, *, wide: bool) -> None:
    if style == "json":
        print_json(data)
    elif style == "html":
        from paceline.report.html import page_of_tables  # noqa: PLC0415 - jinja only when needed

        click.echo(page_of_tables("Comparison", tables))
    else:
        for table in tables:
            click.echo(table.render("markdown" if style == "md" else "terminal", wide=wide))


@click.command("gate")
@click.argument("run", default="latest")
@click.option("--against", default=None, help="Baseline run [default: the one set by `store baseline`].")
@margin_option("Tolerated relative change of every metric.")
@click.option("--strict", is_flag=True, help="Fail with exit code 4 if a series is inconclusive.")
@wide_option
@results_option
@json_option
def gate(
    run: str,
    against: str | None,
    margin: float | None,
    strict: bool,
    wide: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """Compare RUN with the baseline run; the exit code reports regressions.

    0: nothing got worse; 1: a regression, a technique that now crashes, or a refuted claim; 4: inconclusive (with
    --strict); 5: a technique gave a wrong result; 6: the runs cannot be compared.
    """
    from paceline.analysis.gate import judge_run, set_baseline, waivers  # noqa: PLC0415 - the gate's own module

    loaded = load_stores(results, say=warn)  # what decides a merge rests on the files alone
    record = loaded.find(run)
    base = loaded.find(against) if against else set_baseline(loaded, record)
    decision = judge_run(record, base, margin=margin, waivers=waivers(loaded, utc()[:10]))
    if as_json:
        print_json(
            {
                "run": record.run_id,
                "baseline": base.run_id,
                "exit_code": decision.exit_code(strict=strict),
                "wrong": decision.wrong,
                "lost": decision.lost,
                "worse": [run_comparison_facts(c) for c in decision.worse],
                "better": [run_comparison_facts(c) for c in decision.better],
                "inconclusive": len(decision.inconclusive),
                "equivalent": len(decision.equivalent),
                "refuted_claims": [c.claim_id for c in decision.refuted],
                "waived": decision.waived,
            }
        )
    else:
        shown = [*decision.worse, *decision.better]
        if shown:
            click.echo(
                run_comparison_table(shown, record.run_id[:8], base.run_id[:8], wide=wide).render(wide=wide)
            )
        for text in decision.wrong:
            click.echo(f"wrong: {text}")
        for text in decision.lost:
            click.echo(f"lost: {text}")
        for claim in decision.refuted:
            click.echo(f"claim refuted: {claim.suite} {claim.claim_id}: {claim.expectation}")
        for text in decision.waived:
            click.echo(f"waived: {text}")
        click.echo(
            f"{len(decision.worse)} worse, {len(decision.better)} better, {len(decision.equivalent)} equivalent, "
            f"{len(decision.inconclusive)} inconclusive, against {base.run_id}"
        )
    code = decision.exit_code(strict=strict)
    assert code in (EXIT_OK, EXIT_REGRESSION, EXIT_INCONCLUSIVE) or decision.wrong
    sys.exit(code)
