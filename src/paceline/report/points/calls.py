"""The first calls of a launch, one by one: ``accounting.courses``, drawn and listed on a point's page."""

from __future__ import annotations

from paceline.analysis.points import Point
from paceline.base.units import format_quantity
from paceline.records.format.parts import CallTimes
from paceline.report.boards.page import Chart
from paceline.report.charts.load import CallBar, calls_chart
from paceline.report.html import Grid, rows_grid
from paceline.report.words.estimates import ABSENT

WHOLE = "complete"
MOST_NAME = 7
"""Letters of a tenant's name beside a bar."""


def call_charts(point: Point) -> list[Chart]:
    """Return a chart for each technique that has calls to show, all over the same time."""
    found = {label: bars for label in point.labels if (bars := _bars(_calls(point, label)))}
    ends = [
        t for bars in found.values() for b in bars for t in (b.due_s, b.sent_s, b.last_s) if t is not None
    ]
    return [
        Chart(title=f"First calls of {label}", graphic=calls_chart(label, bars, end_s=max(ends)))
        for label, bars in found.items()
    ]


def call_grid(point: Point) -> Grid:
    """Return the numbers behind the charts, a row for each technique and call."""
    rows = []
    for label in point.labels:
        for number, call in enumerate(_calls(point, label)):
            due_s = call["due_s"]
            since = [
                ABSENT if due_s is None or at is None else format_quantity(at - due_s, "s")
                for at in (call["sent_s"], call["first_s"], call["last_s"])
            ]
            due = ABSENT if due_s is None else format_quantity(due_s, "s")
            told = [call["tenant"] or ABSENT, due, *since, str(call["tokens"]), call["kind"]]
            rows.append([label, str(number), *told])
    headers = (
        "technique",
        "call",
        "tenant",
        "due",
        "sent after",
        "first token after",
        "last after",
        "tokens",
        "ended",
    )
    return rows_grid("calls of the first launch", headers, rows)


def _calls(point: Point, label: str) -> list[CallTimes]:
    """Return the calls of a technique's first launch that kept some."""
    found = [
        (m.launch, calls)
        for (name, _), cell in point.cells.items()
        if name == label
        for m in cell.measurements
        if (calls := (m.accounting or {}).get("courses"))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else []


def _bars(calls: list[CallTimes]) -> list[CallBar]:
    """Return the calls that became due, in the order in which they did."""
    several = len({c["tenant"] for c in calls}) > 1
    bars = [
        CallBar(
            number=number,
            name=f"{call['tenant'][:MOST_NAME]} {number}" if several else f"call {number}",
            due_s=call["due_s"],
            sent_s=call["sent_s"],
            first_s=call["first_s"],
            last_s=call["last_s"],
            failure=None if call["kind"] == WHOLE else call["kind"],
        )
        for number, call in enumerate(calls)
        if call["due_s"] is not None
    ]
    return sorted(bars, key=lambda bar: (bar.due_s, bar.number))
