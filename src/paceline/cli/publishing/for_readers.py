"""What ``paceline export`` writes for readers: LaTeX, figures, Markdown and Prometheus' text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from paceline.analysis.points import Point, points_of
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.cli.options import margin_option, together, warn
from paceline.records.store.lookup import find_run
from paceline.report.exports.formats import write
from paceline.report.runs.comparison import difference_table
from paceline.report.tables.results import Table, comparison_table, marked, run_comparison_table, suite_tables
from paceline.workflows.comparing import compare_two
from paceline.workflows.showing import Asked, Shown, choose

Command = TypeVar("Command", bound=Callable[..., object])

FORMATS: Mapping[str, str] = {
    "latex": "tables for a paper (booktabs), to be read by \\input",
    "figure": "charts for a paper, SVG or PNG by the name of --output",
    "markdown": "summary for a pull request: the verdicts, and the tables folded",
    "prometheus": "text for a dashboard: values, effects and verdicts as gauges",
}
"""Formats for readers, and what each is."""
OPTIONS: Mapping[str, Sequence[str]] = {
    "suites": tuple(FORMATS),
    "filters": tuple(FORMATS),
    "baseline": tuple(FORMATS),
    "margin": tuple(FORMATS),
    "against": ("latex", "markdown"),
    "chart": ("figure",),
    "standalone": ("latex",),
}
"""Option → the formats that it changes."""
FLAGS = {"suites": "--suite", "filters": "--filter"}
"""Options that are called otherwise on the command line."""


reader_options = together(
    click.option("--standalone", is_flag=True, help="latex: a document of its own."),
    click.option(
        "--chart",
        type=click.Choice(("sweep", "effects")),
        default=None,
        help="figure: values over a parameter, or effects beside the baseline [default: what fits].",
    ),
    click.option(
        "--against", metavar="RUN", default=None, help="latex, markdown: compare RUN with this one."
    ),
    margin_option("For readers: equivalence margin for every metric."),
    click.option("--baseline", default=None, help="For readers: compare with this technique."),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="KEY=VALUE[,VALUE]",
        help="For readers: only points with these values.",
    ),
    click.option("--suite", "suites", multiple=True, help="For readers: the newest run of this suite."),
)
"""Options of formats for readers."""


def refuse_idle(style: str, given: Mapping[str, object]) -> None:
    """Refuse options that would change nothing of a format.

    Raises:
        UserError: One was given.
    """
    for name, formats in OPTIONS.items():
        if style not in formats and given.get(name) not in (None, False, ()):
            raise UserError(
                f"{style} has no use for it",
                where=FLAGS.get(name, f"--{name}"),
                expected=f"it with {', '.join(formats)}",
                fix="leave it out",
            )


def publish(
    style: str,
    roots: Sequence[Path],
    asked: Asked,
    *,
    against: str | None,
    chart: str | None,
    standalone: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Write a format of ``FORMATS``."""
    if style == "figure":
        _figures(choose(roots, asked, say=warn), asked, chart, output, force=force)
        return
    if style == "prometheus":
        from paceline.report.exports.prometheus import prometheus_text  # noqa: PLC0415 - one format at a time

        shown = choose(roots, asked, say=warn)
        text = prometheus_text(shown.points, shown.comparisons)
    elif against is not None:
        text = _change(style, roots, asked, against, force=force, standalone=standalone)
    else:
        text = _tables(style, choose(roots, asked, say=warn), asked, standalone=standalone)
    _put(output, text.encode(), force=force)


def _put(output: Path | None, data: bytes, *, force: bool) -> None:
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write(output, data, replace=force)
        click.echo(str(output), err=True)


def _tables(style: str, shown: Shown, asked: Asked, *, standalone: bool) -> str:
    # a board ranks by its suite's metric: what was asked for is laid out one comparison a row
    tables = (
        [comparison_table(shown.comparisons)]
        if asked.metrics
        else suite_tables(shown.points, shown.comparisons)
    )
    heads = _heads(shown.points)
    if style == "latex":
        return _latex(tables, heads, standalone=standalone)
    from paceline.report.summaries.decided import summarise_comparisons  # noqa: PLC0415
    from paceline.report.summaries.pull_request import summary_text  # noqa: PLC0415 - one format at a time

    return summary_text(summarise_comparisons(shown.points, shown.comparisons), tables, heads)


def _latex(tables: Sequence[Table], heads: Sequence[str], *, standalone: bool) -> str:
    from paceline.report.exports.latex import latex_document  # noqa: PLC0415 - one format at a time

    return latex_document(tables, heads, standalone=standalone)


def _change(
    style: str, roots: Sequence[Path], asked: Asked, against: str, *, force: bool, standalone: bool
) -> str:
    """Return a run beside an earlier one."""
    idle = {"--suite": asked.suites, "--filter": asked.filters, "--baseline": asked.baseline}
    idle |= {"--techniques": asked.techniques}
    for name, value in idle.items():
        if value:
            raise UserError("two runs are compared series by series", where=name, fix="leave it out")
    if len(asked.runs) > 1:
        raise UserError("one run is compared with another", where="--against", expected="one RUN")
    left, right = find_run(roots, (asked.runs or ("latest",))[0]), find_run(roots, against)
    series, reason = compare_two(
        left, right, metrics=asked.metrics, margin=asked.margin, force=force, say=warn
    )
    table = run_comparison_table(series, left.run_id[:13], right.run_id[:13])
    tables = [marked(table, reason), difference_table(left.run, right.run)]
    points = points_of(left)
    heads = [*_heads(points), *(f"against {head}" for head in _heads(points_of(right)))]
    if style == "latex":
        return _latex(tables, heads, standalone=standalone)
    from paceline.report.summaries.pull_request import change_text  # noqa: PLC0415 - one format at a time

    return change_text(series, points, tables, heads, reason)


def _heads(points: Sequence[Point]) -> list[str]:
    """Say where numbers are from, a line for each run."""
    runs = {p.run.run_id: p for p in points}
    lines = []
    for run_id, point in runs.items():
        commit = str(point.run.code.get("commit") or "")[:12]
        dirty = " with uncommitted changes" if point.run.code.get("dirty") else ""
        code = f", commit {commit}{dirty}" if commit else ""
        lines.append(
            f"paceline run {run_id} of {point.run.started[:10]}, {point.board[2]}, {point.board[1]}{code}"
        )
    return lines


def _figures(shown: Shown, asked: Asked, chart: str | None, output: Path | None, *, force: bool) -> None:
    from paceline.report.exports.figures import figures, png  # noqa: PLC0415 - one format at a time

    suffix = output.suffix.lower() if output is not None else ".svg"
    if suffix not in (".svg", ".png"):
        raise UserError(
            f"'{output}' is neither SVG nor PNG",
            where=f"--output={output}",
            expected="a name with .svg or .png",
        )
    found = figures(shown.points, shown.comparisons, chart=chart, metrics=asked.metrics)
    if output is None:
        if len(found) > 1:
            titles = "; ".join(f.title for f in found)
            raise UserError(
                f"there are {number_of(len(found), 'figure')}: {titles}",
                fix="--output=FIGURE.svg numbers them",
            )
        _put(None, found[0].svg.encode(), force=force)
        return
    width = len(str(len(found)))
    names = [
        output if len(found) == 1 else output.with_name(f"{output.stem}-{i:0{width}}{output.suffix}")
        for i in range(1, len(found) + 1)
    ]
    for name in names:
        if name.exists() and not force:
            raise UserError("the file exists", where=str(name), fix="--force replaces it")
    for name, figure in zip(names, found, strict=True):
        write(name, png(figure) if suffix == ".png" else figure.svg.encode(), replace=force)
        click.echo(f"{name}: {figure.title}", err=True)
