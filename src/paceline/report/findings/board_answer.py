"""What a board answers first: who wins at each point, by how much, and under which condition the order changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.base.counting import number_of
from paceline.report.boards.page import Chart
from paceline.report.boards.standing import Board
from paceline.report.boards.sweeps import crossings_of
from paceline.report.findings.sentences import gain_chart, order_text
from paceline.report.points.tradeoffs import frontier_charts
from paceline.report.tables.quality import Loss, losses, quality_ranks
from paceline.report.tables.results import primary_metric
from paceline.report.words.estimates import format_effect
from paceline.report.words.names import metric_label

MOST_WINNERS, MOST_CROSSINGS = 3, 2
"""Techniques, and crossings, that a sentence names."""
LEAST_PLACED = 2
"""Techniques with a number, for one of them to be the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Two sentences and one chart."""

    winners: str
    condition: str
    chart: Chart | None


def answer(board: Board, comparisons: Sequence[Comparison], sweeps: Sequence[Chart]) -> Answer | None:
    """Return what a board answers; None where no point of it has a number.

    Args:
        board: The board.
        comparisons: Its own, of all metrics.
        sweeps: Its charts over a sweep: the first is drawn where no metric of quality has a front.
    """
    points = [p for p in board.points if p.cells]
    if not points:
        return None
    metric, lost = primary_metric(points), losses(comparisons)
    found = {(id(c.point), c.label): c for c in comparisons if c.metric == metric}
    return Answer(
        winners=_winners(points, metric, lost, found),
        condition=_condition(board, comparisons, metric, lost, found),
        chart=_chart(points, metric, lost, sweeps, found.values()),
    )


Found = dict[tuple[int, str], Comparison]


def _winners(points: Sequence[Point], metric: str, lost: dict[tuple[int, str], Loss], found: Found) -> str:
    """Say which technique is best where, and how far from the baseline it is there."""
    best: dict[str, list[Point]] = {}
    tied = alone = 0
    for point in points:
        placed = quality_ranks(point, metric, lost)
        first = [name for name, (low, _) in placed.items() if low == 1]
        if len(placed) < LEAST_PLACED:
            alone += 1
        elif len(first) == 1:
            best.setdefault(first[0], []).append(point)
        else:
            tied += bool(first)
    label = metric_label(metric)
    if alone == len(points):
        return f"Nothing stands beside another here: each point has one technique with a number in {label}."
    if not best:
        where = "at this point" if len(points) == 1 else "at any point"
        return f"No winner is decided in {label} {where}."
    named = sorted(best, key=lambda name: (-len(best[name]), name))
    texts = [_won(name, best[name], len(points), found) for name in named[:MOST_WINNERS]]
    more = [f"{len(named) - MOST_WINNERS} more"] if len(named) > MOST_WINNERS else []
    ties = f"; at {tied} no single best is decided" if tied else ""
    kept = ", of those that lose no quality" if lost else ""
    return f"Best in {label}{kept}: {', then '.join([*texts, *more])}{ties}."


def _won(name: str, at: Sequence[Point], count: int, found: Found) -> str:
    """Name a winner with where it won and by how much."""
    where = (
        ""
        if count == 1
        else f" at all {number_of(count, 'point')}"
        if len(at) == count
        else f" at {len(at)} of {number_of(count, 'point')}"
    )
    effects = sorted(
        (c for p in at if (c := found.get((id(p), name))) is not None), key=lambda c: c.effect.value
    )
    if not effects:
        return f"{name}, the baseline,{where}" if where else f"{name}, the baseline"
    low, high = effects[0], effects[-1]
    if len(effects) == 1 or f"{low.effect.value:.3g}" == f"{high.effect.value:.3g}":
        shown = format_effect(low.effect, low.kind, verdict=low.verdict.name)
    else:
        mark = " ×" if low.kind == "ratio" else ""
        shown = f"{low.effect.value:.3g} to {high.effect.value:.3g}{mark}"
    versus = (
        f"{shown} {low.point.baseline}" if low.kind == "ratio" else f"{shown} against {low.point.baseline}"
    )
    return f"{name}{where} ({versus})"


def _condition(
    board: Board,
    comparisons: Sequence[Comparison],
    metric: str,
    lost: dict[tuple[int, str], Loss],
    found: Found,
) -> str:
    """Say where the order changes; where it is not known to, what quality was paid, or what is not told apart."""
    crossings = [c for c in crossings_of(board, comparisons) if c.metric == metric and c.decided == "yes"]
    if crossings:
        texts = [
            order_text(c) + (f" ({c.sweep.rest})" if c.sweep.rest else "") for c in crossings[:MOST_CROSSINGS]
        ]
        more = len(crossings) - MOST_CROSSINGS
        others = f"; {number_of(more, 'more crossing')} below" if more > 0 else ""
        return f"The order changes: {'; '.join(texts)}{others}."
    paid = Counter(name for at, name in lost if (c := found.get((at, name))) and c.verdict.name == "faster")
    if paid:
        named = ", ".join(sorted(paid)[:MOST_WINNERS])
        rest = f" and {len(paid) - MOST_WINNERS} more" if len(paid) > MOST_WINNERS else ""
        return f"What {named}{rest} gained was paid for with quality."
    num_open = sum(c.verdict.name == "inconclusive" for c in found.values())
    if num_open == len(found):
        return "No comparison with the baseline is decided."
    open_ones = f"; of {number_of(len(found), 'comparison')} {num_open} not decided" if num_open else ""
    if len(board.points) == 1:
        return f"It was measured at one point{open_ones}."
    return f"No change of order along the points is decided{open_ones}."


def _chart(
    points: Sequence[Point],
    metric: str,
    lost: dict[tuple[int, str], Loss],
    sweeps: Sequence[Chart],
    found: Iterable[Comparison],
) -> Chart | None:
    """Return the front of quality and cost where some lose quality, else the first sweep, else the largest effect."""
    names = sorted({label for p in points for label in p.labels})
    paid = {at for at, _ in lost}
    fronts = [(p, charts) for p in points if id(p) in paid and (charts := frontier_charts(p, names))]
    if fronts:
        _, drawn_there = max(fronts, key=lambda f: len(f[0].labels))
        return next(
            (c for c in drawn_there if f" against {metric_label(metric)}:" in c.title), drawn_there[0]
        )
    if sweeps:
        return sweeps[0]
    drawn = [
        c
        for c in found
        if c.verdict.name in ("faster", "slower") and c.kind == "ratio" and c.effect.value > 0
    ]
    if not drawn:
        return None
    largest = min(drawn, key=lambda c: (min(c.effect.value, 1 / c.effect.value), c.label))
    title = f"{metric_label(largest.metric)} of {largest.label} beside {largest.point.baseline}"
    return Chart(title=title, graphic=gain_chart(largest))
