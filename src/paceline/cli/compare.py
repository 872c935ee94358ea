"""``paceline compare`` and ``paceline gate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from paceline.analysis.compare import (
    Comparison,
    Point,
    compare_points,
    points_of,
)
from paceline.analysis.runs import RunComparison, compare_runs, incomparable
from paceline.base.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_OK,
    EXIT_REGRESSION,
    IncomparableError,
    UserError,
    expected_one_of,
)
from paceline.cli.options import (
    default_results,
    json_option,
    margin_option,
    metrics_today,
    print_json,
    published_results,
    results_option,
    split_names,
    warn,
    wide_option,
)
from paceline.records.lookup import find_run
from paceline.records.record import utc
from paceline.records.store import Loaded, RunRecord, load, read_record
from paceline.report.comparepages import difference_table
from paceline.report.tables import Table, board_table, comparison_table, marked, run_comparison_table

FORMATS = ("table", "md", "json", "html")


def stores(results: Path | None, *, new: bool = False) -> list[Path]:
    """Return the store in use, and the checkout's published runs beside it.

    Raises:
        UserError: The store was named, does not exist, and is not ``new`` either.
    """
    if results is not None and not new and not results.is_dir():
        raise UserError(
            "no such store", where=str(results), expected="a folder of records", fix="--results DIR"
        )
    roots = [results or default_results()]
    published = published_results()
    if published is not None and results is None:
        roots.append(published)
    return [r for r in roots if r.is_dir()]


def load_stores(
    results: Path | None, read: Callable[[Path], RunRecord] = read_record, *, new: bool = False
) -> Loaded:
    """Read all records of ``stores``; whoever needs one of them asks ``lookup.find_run``."""
    return load(stores(results, new=new), read=read)


@click.command("compare")
@click.argument("a", default="latest")
@click.argument("b", required=False)
@click.option("--by", type=click.Choice(("technique", "run")), default=None, help="What A and B are.")
@click.option("--run", "run_name", default="latest", show_default=True, help="The run, with --by technique.")
@click.option("--metrics", multiple=True, help="Metrics to compare; default: those that suites name.")
@margin_option("Equivalence margin for every metric.")
@click.option("--format", "style", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--force", is_flag=True, help="Compare runs that should not be compared; marked in the output.")
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

    Techniques of one run shared launches, over which the interval is taken. Two runs were measured at different times,
    and the table says so; a second table says what else differs between them (not with --format json).
    """
    if as_json and style not in ("table", "json"):
        raise click.UsageError(f"--json and --format {style} ask for two texts; give one of them")
    _refuse_idle_options(b, by, force=force)
    roots = stores(results)
    style = "json" if as_json else style
    names = metrics_today(split_names(metrics))
    if b is None:
        record = find_run(roots, a)
        points = points_of(record)
        _check_metrics(names, points)
        comparisons = compare_points(points, metrics=names, margin=margin)
        _name_uncompared(names, [c.metric for c in comparisons])
        suites = dict.fromkeys(p.suite for p in points)
        boards = [board_table([p for p in points if p.suite == s], comparisons, wide=wide) for s in suites]
        _print(boards, [_plain(c) for c in comparisons], style, wide=wide)
    elif by == "technique":
        _compare_techniques(find_run(roots, run_name), a, b, names, margin, style, wide=wide)
    else:
        _compare_two_runs(
            find_run(roots, a), find_run(roots, b), names, margin, style, force=force, wide=wide
        )


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


def _check_metrics(names: Sequence[str], points: Sequence[Point]) -> None:
    """Refuse metrics that none of the points has."""
    known = {metric for p in points for _, metric in p.cells}
    for name in names:
        if name not in known:
            raise UserError(
                f"what is compared has no metric '{name}'",
                where="--metrics",
                expected=expected_one_of(name, known),
            )


def _name_uncompared(names: Sequence[str], found: Sequence[str]) -> None:
    """Name the metrics that were asked for and that the two sides do not share anywhere.

    Raises:
        UserError: They share none.
    """
    lost = [name for name in names if name not in found]
    text = f"no point has {', '.join(lost)} of both sides"
    if lost and len(lost) == len(names):
        raise UserError(text, where="--metrics", fix="paceline compare without --metrics")
    if lost:
        warn(f"--metrics: {text}")


def _compare_techniques(
    record: RunRecord,
    a: str,
    b: str,
    metrics: Sequence[str],
    margin: float | None,
    style: str,
    *,
    wide: bool,
) -> None:
    points = points_of(record)
    labels = {label for p in points for label in p.labels}
    for name in (a, b):
        if name not in labels:
            raise UserError(f"the run has no technique '{name}'", expected=expected_one_of(name, labels))
    _check_metrics(metrics, points)
    for point in points:
        point.baseline = b
    comparisons = [c for c in compare_points(points, metrics=metrics, margin=margin) if c.label == a]
    _name_uncompared(metrics, [c.metric for c in comparisons])
    if not comparisons:
        raise UserError(
            f"no point has a number of both '{a}' and '{b}'", where=record.run_id, fix="paceline compare RUN"
        )
    table = comparison_table(comparisons, wide=wide)
    _print([table], [_plain(c) for c in comparisons], style, wide=wide)


def _compare_two_runs(
    left: RunRecord,
    right: RunRecord,
    metrics: Sequence[str],
    margin: float | None,
    style: str,
    *,
    force: bool,
    wide: bool,
) -> None:
    reason = incomparable(left.run, right.run)
    if reason is not None and not force:
        raise IncomparableError(f"{reason}\n  fix: --force compares them all the same, and marks the result")
    _check_metrics(metrics, [*points_of(left), *points_of(right)])
    comparisons = compare_runs(left, right, metrics=metrics, margin=margin)
    _name_uncompared(metrics, [c.metric for c in comparisons])
    if not comparisons:
        warn(f"the runs share nothing: {_suites_of(left)} there, {_suites_of(right)} here")
    table = marked(run_comparison_table(comparisons, left.run_id[:13], right.run_id[:13], wide=wide), reason)
    tables = [table, difference_table(left.run, right.run)]
    _print(tables, [_plain_run(c) for c in comparisons], style, wide=wide)


def _suites_of(record: RunRecord) -> str:
    return ", ".join(str(s["suite"]) for s in record.run.suites) or "no suite"


def _print(tables: Sequence[Table], data: list[dict[str, Any]], style: str, *, wide: bool) -> None:
    if style == "json":
        print_json(data)
    elif style == "html":
        from paceline.report.html import page_of_tables  # noqa: PLC0415 - jinja only when needed

        click.echo(page_of_tables("Comparison", tables))
    else:
        for table in tables:
            click.echo(table.render("markdown" if style == "md" else "terminal", wide=wide))


def _plain(c: Comparison) -> dict[str, Any]:
    return {
        "suite": c.point.suite,
        "params": dict(c.point.params),
        "technique": c.label,
        "baseline": c.point.baseline,
        "metric": c.metric,
        "unit": c.unit,
        "value": c.value.value,
        "baseline_value": c.baseline_value.value,
        "effect": c.effect.value,
        "low": c.effect.low,
        "high": c.effect.high,
        "kind": c.kind,
        "method": c.effect.method,
        "launches": c.effect.num_launches,
        "p": c.effect.p_value,
        "q": c.q_value,
        "margin": c.margin,
        "verdict": c.verdict.name,
        "reason": c.verdict.reason,
        "minimum_detectable": c.verdict.minimum_detectable,
        "launches_needed": c.verdict.launches_needed,
        "grade": c.grade,
        "warnings": list(c.warnings),
        "run_id": c.point.run.run_id,
    }


def _plain_run(c: RunComparison) -> dict[str, Any]:
    return {
        "suite": c.suite,
        "params": dict(c.params),
        "technique": c.label,
        "metric": c.metric,
        "unit": c.unit,
        "left": c.left.value,
        "right": c.right.value,
        "kind": c.kind,
        "effect": c.effect.value,
        "low": c.effect.low,
        "high": c.effect.high,
        "method": c.effect.method,
        "launches": c.effect.num_launches,
        "q": c.q_value,
        "verdict": c.verdict.name,
        "warnings": list(c.effect.warnings),
    }


@click.command("gate")
@click.argument("run", default="latest")
@click.option("--against", default=None, help="Baseline run; default: the one set by `store baseline`.")
@margin_option("Tolerated relative change of every metric.")
@click.option("--strict", is_flag=True, help="Inconclusive series fail with exit code 4.")
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
    """Compare RUN with the baseline run; exit 0 when nothing got worse, 1 on a regression, a
    technique that now crashes, or a refuted claim.

    4: inconclusive (with --strict), 5: a technique gave a wrong result, 6: the runs cannot be compared.
    """
    from paceline.analysis.gate import judge_run, set_baseline, waivers  # noqa: PLC0415 - the gate's own module

    loaded = load_stores(results)
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
                "worse": [_plain_run(c) for c in decision.worse],
                "better": [_plain_run(c) for c in decision.better],
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
