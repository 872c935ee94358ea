"""The sentences and the small charts of findings, from the estimates that tables show."""

from __future__ import annotations

from functools import partial

from markupsafe import Markup

from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import Comparison
from paceline.analysis.trend import Alert
from paceline.base.counting import number_of
from paceline.base.units import format_quantity
from paceline.report.boards.places import NAMELESS, place_text
from paceline.report.boards.standing import Board
from paceline.report.boards.sweeps import LINK, Crossing, place, place_name
from paceline.report.charts.small import Bar, Line, asked_chart, bar_chart, line_chart
from paceline.report.claims.partly import part_text
from paceline.report.claims.text import found_text
from paceline.report.runs.trends import Trend, direction, format_change
from paceline.report.tables.quality import Loss
from paceline.report.tables.results import varying_params
from paceline.report.words.estimates import format_effect, format_verdict
from paceline.report.words.names import metric_label, param_label

FEW_TIMES = 1.1
"""Below so large a factor a gain is told in per cent."""


def gain_sentence(c: Comparison, board: Board) -> str:
    """Say a gain: ``gossip-pair is 5.9 times as fast as allreduce-mean: latency 20 ms against 119 ms (…).``"""
    return f"{_gain(c)}: {_values(c)} ({where(c, board)})."


def price_sentence(c: Comparison, loss: Loss, board: Board) -> str:
    """Say a gain with what was paid for it."""
    return f"{_gain(c)}, but worse: {_values(c)}, and {_values(loss.comparison)} ({where(c, board)})."


def crossing_sentence(crossing: Crossing, board: Board) -> str:
    """Say where the order of two techniques changes."""
    before, behind = crossing.sides
    rest = f", {crossing.sweep.rest}" if crossing.sweep.rest else ""
    grade, count = max(s.grade for s in crossing.sides), min(s.effect.num_launches for s in crossing.sides)
    return (
        f"{order_text(crossing)}: {metric_label(crossing.metric)} {_effect(before)} at {_at(crossing, before)}, "
        f"{_effect(behind)} at {_at(crossing, behind)} ({board.suite}{rest}; {_place(board)}; grade {grade}, "
        f"{number_of(count, 'launch')})."
    )


def order_text(crossing: Crossing) -> str:
    """Say on which side of a crossing a technique is the better one, without figures."""
    unit, baseline = crossing.sides[0].unit, crossing.sides[0].point.baseline
    order = ("slower", "faster") if crossing.better_beyond else ("faster", "slower")
    below, above = (format_verdict(word, unit) for word in order)
    swept = crossing.sweep.swept
    known = swept in NAMELESS or swept == LINK
    at = f"about {crossing.place}" if known else f"{param_label(swept)} ≈ {crossing.place}"
    return f"{crossing.label} is {below} than {baseline} below {at} and {above} above"


def claim_sentence(claim: ClaimResult) -> str:
    """Say a claim that did not hold, or what part of it did."""
    part = part_text(claim)
    verdict = f"held in part ({part})" if part else "did not hold here"
    versus = f" against {claim.versus}" if claim.versus else ""
    where = f", {claim.where}" if claim.where else ""
    return (
        f"“{claim.quote}” (paper: {claim.paper}) {verdict}: {metric_label(claim.metric)} of {claim.technique}{versus} "
        f"is {found_text(claim)}, asked {claim.expectation} ({claim.suite}{where}; {claim.host_class})."
    )


def change_sentence(trend: Trend, alert: Alert) -> str:
    """Say what changed, and since when."""
    history, change = alert.history, alert.change
    return (
        f"{history.label} is {direction(history, change)} since {history.nights[change.at].started[:10]}: "
        f"{metric_label(history.metric)} {format_change(history, change)}, from "
        f"{format_quantity(change.before, history.unit)} to {format_quantity(change.after, history.unit)} "
        f"({trend.board.suite}, {trend.name}; {_place(trend.board)})."
    )


def where(c: Comparison, board: Board) -> str:
    """Say at which point, on what and with which evidence a comparison was found."""
    at = place_text(c.point, varying_params(board.points))
    count = c.effect.num_launches
    return f"{board.suite}{f', {at}' if at else ''}; {_place(board)}; grade {c.grade}, {number_of(count, 'launch')}"


def gain_chart(c: Comparison, price: Comparison | None = None) -> Markup:
    """Draw both sides of a comparison, and below them of what was paid."""
    groups = [(metric_label(x.metric), _bars(x)) for x in (c, price) if x is not None]
    return bar_chart(
        groups, title=f"{c.label} beside {c.point.baseline}: {' and '.join(n for n, _ in groups)}"
    )


def crossing_chart(crossing: Crossing) -> Markup:
    """Draw both techniques over the sweep, with the place of the crossing."""
    points = crossing.sweep.points
    baseline = points[0].baseline
    kinds = {crossing.label: "good" if crossing.better_beyond else "bad", baseline: "base"}
    lines = []
    for label, kind in kinds.items():
        places = [
            (x, y)
            for p in points
            if (label, crossing.metric) in p.cells
            and (x := place(p, crossing.sweep.swept)) is not None
            and (y := p.estimate(label, crossing.metric).value) > 0
        ]
        lines.append(Line(name=label, places=tuple(places), kind=kind))
    xs = sorted(x for line in lines for x, _ in line.places)
    unit = crossing.sides[0].unit
    ends = place_name(crossing.sweep.swept, xs[0]), place_name(crossing.sweep.swept, xs[-1])
    return line_chart(
        lines,
        title=f"{metric_label(crossing.metric)} of {crossing.label} and {baseline}, which cross at {crossing.place}",
        y_name=metric_label(crossing.metric),
        x_ends=ends,
        y_format=partial(_quantity, unit),
        marked=(crossing.at, crossing.place),
    )


def claim_chart(claim: ClaimResult) -> Markup:
    """Draw what was found beside what was asked."""
    assert claim.worst is not None, claim.claim_id
    ((name, asked),) = claim.expect.items()
    return asked_chart(
        (claim.worst.value, claim.worst.low, claim.worst.high),
        asked,
        title=f"{metric_label(claim.metric)} of {claim.technique}: found {claim.worst.value:.3g}, asked {asked:g}",
        ratio=name.startswith("ratio"),
        met=False,
    )


def change_chart(alert: Alert) -> Markup:
    """Draw the nights of a series, with the one since which it is another."""
    history = alert.history
    places = tuple((float(i), n.value) for i, n in enumerate(history.nights))
    kind = "bad" if history.worse(alert.change) else "good"
    return line_chart(
        [Line(name=history.label, places=places, kind=kind)],
        title=f"{metric_label(history.metric)} of {history.label} over {number_of(len(places), 'night')}",
        y_name=metric_label(history.metric),
        x_ends=(history.nights[0].started[:10], history.nights[-1].started[:10]),
        y_format=partial(_quantity, history.unit),
        marked=(float(alert.change.at), history.nights[alert.change.at].started[:10]),
        log=False,
    )


def _gain(c: Comparison) -> str:
    """Say by how much a technique is better: a factor, and in which way."""
    gain = 1 / c.effect.value if c.better == "lower" else c.effect.value
    baseline = c.point.baseline
    if c.unit == "s":
        if gain < FEW_TIMES:
            return f"{c.label} is {gain - 1:.1%} faster than {baseline}".replace("%", " %")
        return f"{c.label} is {gain:.3g} times as fast as {baseline}"
    label = metric_label(c.metric)
    if c.better == "lower":
        return f"{c.label} needs {100 * c.effect.value:.3g} % of the {label} of {baseline}"
    return f"{c.label} reaches {c.effect.value:.3g} times the {label} of {baseline}"


def _values(c: Comparison) -> str:
    """Write both values and the effect with its interval."""
    own, base = _quantity(c.unit, c.value.value), _quantity(c.unit, c.baseline_value.value)
    label = metric_label(c.metric)
    if label.split(" ")[-1] == f"{c.unit}s":  # a count, whose label says of what
        return f"{c.value.value:,.0f} {label} against {c.baseline_value.value:,.0f}, {_effect(c)}"
    return f"{label} {own} against {base}, {_effect(c)}"


def _effect(c: Comparison) -> str:
    text = format_effect(c.effect, c.kind, verdict=c.verdict.name)
    return text if c.kind == "ratio" else f"difference {text}"


def _at(crossing: Crossing, side: Comparison) -> str:
    return place_name(crossing.sweep.swept, place(side.point, crossing.sweep.swept) or 0.0)


def _place(board: Board) -> str:
    return ", ".join(part for part in (board.runner, board.host_class, board.image_class) if part)


def _bars(c: Comparison) -> list[Bar]:
    point = c.point
    kind = {"faster": "good", "slower": "bad"}.get(c.verdict.name, "even")
    return [
        Bar(
            name=label,
            value=point.estimate(label, c.metric).value,
            launches=tuple(point.cells[(label, c.metric)].values.values()),
            shown=_quantity(c.unit, point.estimate(label, c.metric).value),
            kind=own,
        )
        for label, own in ((c.label, kind), (point.baseline, "base"))
    ]


def _quantity(unit: str, value: float) -> str:
    return format_quantity(value, "" if unit in ("ratio", "1") else unit)
