"""Collectives in the columns of nccl-tests, for scripts that read those columns.

One table for each technique and set of parameters, a line for each size. The time is ours (geometric mean over
launches of the launch's median, slowest rank), where nccl-tests prints an average. Operations of ours that
work in place fill the in-place half, the others the out-of-place half; the half that was not measured holds
N/A. ``#wrong`` is 0 where the oracle passed: a number without that is not kept in a record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline import __version__
from paceline.analysis.points import Cell, Point, points_of
from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.records.format.record import IMPORTED
from paceline.records.imports.nccl_names import PROGRAMS, REDUCING, ROOTED, TYPE_NAMES
from paceline.records.imports.nccl_text import OWN_LINE
from paceline.records.store.folder import RunRecord
from paceline.report.exports.choice import Choice, left_out
from paceline.stats.estimates import estimate_value

IN_PLACE = ("all_reduce", "broadcast", "reduce")
"""Operations whose techniques get one buffer that is input and output."""
LINE_PARAMS = ("size_bytes", "count", "dtype", "redop", "root", "in_place")
"""Parameters that a line's columns hold; all others belong to the table."""
ABSENT_HALF = "  {:>7}  {:>6}  {:>6}  {:>6}".format(*["N/A"] * 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """The half of a line that was measured."""

    time_s: float
    algbw: float
    busbw: float
    """0 for one rank, as nccl-tests prints it."""
    wrong: int | None


@dataclass(slots=True, kw_only=True)
class Line:
    """One size."""

    size: int
    count: int
    type_name: str
    redop: str
    root: int
    halves: dict[bool, Half]
    """In place → half."""


def table(records: Sequence[RunRecord], choice: Choice) -> str:
    """Return the tables as text.

    Raises:
        UserError: No chosen measurement is the time of a collective with a size.
    """
    sections: dict[str, dict[tuple[Any, ...], Line]] = {}
    for record in records:
        for point in points_of(record):
            for label, params, line in _lines(point, choice):
                facts = {"run": record.run_id, "suite": point.suite, "technique": label, "params": params}
                lines = sections.setdefault(json.dumps(facts, sort_keys=True), {})
                key = (line.type_name, line.redop, line.root, line.size, line.count)
                lines.setdefault(key, line).halves.update(line.halves)
    if not sections:
        raise UserError(
            "nothing to export: nccl-tests knows times of collectives with a size only",
            expected=f"runs of: {', '.join(PROGRAMS)}",
            fix="paceline export csv",
        )
    head = f"# Columns of nccl-tests, written by paceline {__version__}: not an output of nccl-tests\n"
    missing = "".join(f"# Left out: {text}\n" for text in left_out(records, choice))
    return head + "".join(_section(facts, lines) for facts, lines in sections.items()) + missing


def _lines(point: Point, choice: Choice) -> Iterator[tuple[str, dict[str, Any], Line]]:
    op = str(point.params.get("op"))
    for label in point.labels:
        cells = {metric: c for (name, metric), c in point.cells.items() if name == label}
        technique = next(iter(cells.values())).technique
        if choice.techniques and not {label, technique} & set(choice.techniques):
            continue
        half = _imported_half(cells) if point.family == IMPORTED else _own_half(point, op, cells)
        if half is None:
            continue
        in_place = bool(point.params["in_place"]) if point.family == IMPORTED else op in IN_PLACE
        table_params = {k: v for k, v in point.params.items() if k not in LINE_PARAMS and v is not None}
        yield label, table_params, _line(point.params, op, half, in_place)


def _own_half(point: Point, op: str, cells: Mapping[str, Cell]) -> Half | None:
    cell = cells.get("latency")
    if point.family != "collectives" or cell is None or op not in PROGRAMS:
        return None
    time_s = estimate_value(cell.launches).value
    derived = {d.name: d for d in load_family(point.family).derived}
    algbw = derived["algbw"].of(point.params, time_s)
    if algbw is None:
        return None
    busbw = derived["busbw"].of(point.params, time_s)
    return Half(time_s=time_s, algbw=algbw, busbw=busbw or 0.0, wrong=0)


def _imported_half(cells: Mapping[str, Cell]) -> Half | None:
    if not {"time", "algbw", "busbw"} <= set(cells):
        return None
    values = {name: estimate_value(cells[name].launches).value for name in ("time", "algbw", "busbw")}
    correctness = cells["time"].measurements[0].correctness or {}
    wrong = (correctness.get("reported") or {}).get("wrong_elements")
    return Half(time_s=values["time"], algbw=values["algbw"], busbw=values["busbw"], wrong=wrong)


def _line(params: Mapping[str, Any], op: str, half: Half, in_place: bool) -> Line:
    """Count elements as nccl-tests does: of one rank's share where the operation is sharded."""
    count = params.get("count")
    size = int(params["size_bytes"])
    if count is None:
        # one family's rules
        from paceline.families.collectives.core.planning.operation import operation_of  # noqa: PLC0415
        from paceline.families.collectives.core.planning.sizes import ITEM_BYTES, element_count  # noqa: PLC0415

        elements = element_count(params)
        size = elements * ITEM_BYTES[str(params["dtype"])]
        count = elements // int(params["ranks"]) if operation_of(params).sharded else elements
    dtype = str(params["dtype"])
    default_redop = "sum" if op in REDUCING else "none"
    default_root = 0 if op in ROOTED else -1
    root = params.get("root")
    return Line(
        size=size,
        count=int(count),
        type_name=TYPE_NAMES.get(dtype, dtype),
        redop=str(params.get("redop") or default_redop),
        root=int(root) if root is not None else default_root,
        halves={in_place: half},
    )


def _section(facts: str, lines: Mapping[tuple[Any, ...], Line]) -> str:
    data = json.loads(facts)
    program = PROGRAMS.get(data["params"]["op"], data["params"]["op"])
    names = ("size", "count", "type", "redop", "root")
    units = ("(B)", "(elements)", "", "", "")
    point = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}"
    half = "  {:>7}  {:>6}  {:>6}  {:>6}"
    head = [
        "#",
        OWN_LINE + facts,
        f"# Operation: {program}, ranks: {data['params'].get('ranks', 'unknown')}, technique: {data['technique']}",
        "#",
        point.format(*[""] * 5) + "           out-of-place                       in-place          ",
        point.format(*names) + half.format("time", "algbw", "busbw", "#wrong") * 2,
        point.format(*units) + half.format("(us)", "(GB/s)", "(GB/s)", "") * 2,
    ]
    body = [_row(lines[key]) for key in sorted(lines)]
    return "\n".join([*head, *body]) + "\n"


def _row(line: Line) -> str:
    start = f"{line.size:12d}  {line.count:12d}  {line.type_name:>8}  {line.redop:>6}  {line.root:6d}"
    halves = [_half(line.halves[i]) if i in line.halves else ABSENT_HALF for i in (False, True)]
    return start + "".join(halves)


def _half(half: Half) -> str:
    wrong = "N/A" if half.wrong is None else f"{half.wrong:g}"
    return f"  {fit(half.time_s * 1e6, 7):>7}  {fit(half.algbw / 1e9, 6):>6}  {fit(half.busbw / 1e9, 6):>6}  {wrong:>6}"


def fit(value: float, width: int) -> str:
    """Write a number as nccl-tests does: two decimals, fewer where the column is too narrow, then an exponent."""
    for digits in (2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:.1e}" if width >= 7 else f"{value:.0e}"
