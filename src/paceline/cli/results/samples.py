"""``paceline samples``: logs of samples of the same items against each other, whichever harness wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from paceline.analysis.sample_pairs import SamplePair, Side, compare_samples, side_of
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.cli.options import json_option, print_json, wide_option
from paceline.records.imports.sample_logs import read_log
from paceline.report.tables.results import Table
from paceline.report.words.estimates import ABSENT


@click.command("samples")
@click.argument("logs", nargs=-1, required=True, metavar="LOG LOG...")
@click.option(
    "--metric", default=None, metavar="NAME", help="Score of an item [default: the first of each log]."
)
@click.option(
    "--cluster", default=None, metavar="FIELD", help="Items with an equal field share what makes them hard."
)
@click.option(
    "--allow-partial",
    "partial",
    is_flag=True,
    help="Compare the items that both have, of runs that did not end too.",
)
@wide_option
@json_option
def samples(
    logs: tuple[str, ...], metric: str | None, cluster: str | None, partial: bool, wide: bool, as_json: bool
) -> None:
    """Compare logs of samples of the same items, each with the first, item by item.

    LOG is a file or folder of lm-evaluation-harness (--log_samples), inspect_ai, lighteval (--save-details) or
    `paceline evaluate`. LOG#NAME takes one filter, scorer or method of it.
    """
    if len(logs) == 1:
        raise UserError(
            "one log alone", where="LOG", expected="two or more", fix=f"paceline samples {logs[0]} OTHER"
        )
    sides = [side_of(read_log(name, partial=partial), metric) for name in logs]
    pairs = compare_samples(sides, cluster=cluster, partial=partial)
    if as_json:
        print_json(_plain(sides, pairs))
    else:
        click.echo(_table(sides, pairs, cluster).render(wide=wide), nl=False)


def _plain(sides: Sequence[Side], pairs: Sequence[SamplePair]) -> list[dict[str, object]]:
    first = {"log": sides[0].name, "tool": sides[0].tool, "metric": sides[0].metric, "mean": sides[0].mean}
    others = [
        {
            "log": one.side.name,
            "tool": one.side.tool,
            "metric": one.side.metric,
            "mean": one.side.mean,
            **asdict(one.found),
            "won": one.won,
            "lost": one.lost,
            "mcnemar_p": one.exact_p,
            "holm_p": one.adjusted_p,
        }
        for one in pairs
    ]
    return [first, *others]


def _table(sides: Sequence[Side], pairs: Sequence[SamplePair], cluster: str | None) -> Table:
    first = sides[0]
    rows = [(first.name, f"{first.mean:.4f}", "baseline", "", "", "", "")]
    notes = []
    for one in pairs:
        found = one.found
        interval = (
            "" if found.low is None or found.high is None else f" [{found.low:+.4f}, {found.high:+.4f}]"
        )
        rows.append(
            (
                one.side.name,
                f"{one.side.mean:.4f}",
                f"{found.difference:+.4f}{interval}",
                ABSENT if found.error is None else f"{found.error:.4f}",
                f"{one.won}/{one.lost}",
                ABSENT if one.adjusted_p is None else f"{one.adjusted_p:.3g}",
                ABSENT if found.least is None else f"{found.least:.4f}",
            )
        )
        if one.exact_p is not None:
            notes.append(f"{one.side.name}: McNemar's exact test says p = {one.exact_p:.3g}, not adjusted")
        if one.only_first or one.only_other:
            notes.append(
                f"{one.side.name}: {number_of(found.num_items, 'item')} of both; {one.only_first} and {one.only_other} "
                "are in one alone"
            )
    grouped = (
        f"{pairs[0].found.num_clusters} clusters by {cluster}" if cluster else "each a cluster of its own"
    )
    return Table(
        title=f"{first.metric} · {number_of(pairs[0].found.num_items, 'item')}, {grouped}",
        headers=("log", "mean", "difference", "std. error", "won/lost", "p (Holm)", "detectable"),
        rows=tuple(rows),
        notes=("detectable: the difference that would be found in 80 % of such comparisons", *notes),
    )
