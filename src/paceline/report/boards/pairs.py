"""Any two techniques of a board, and one suite on several machines: what the pages that compare them show.

Two techniques of a board ran in the same launches, so that each pair has a ratio of its own, by launch, with the
verdict on which ranks rest. Two machines have nothing in common but the suite: what is set side by side there is each
technique against the baseline of the same machine, and whether the verdicts agree. Values of two machines are not
divided by each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.analysis.compare import Comparison, Duel, duels
from paceline.analysis.evidence import params_key
from paceline.analysis.points import sort_key
from paceline.base.families.family import load_family
from paceline.base.units import format_quantity
from paceline.report.boards.page import point_name, shown_verdict
from paceline.report.boards.standing import Board, slug
from paceline.report.html import NO_DIFFERENCE, Cell, Grid, verdict_class
from paceline.report.tables.quality import losses, qualified
from paceline.report.tables.results import effect_text, primary_metric, value_text, varying_params
from paceline.report.words.estimates import ABSENT, format_effect, format_verdict, verdict_text

DECIDED = frozenset({"faster", "slower", "equivalent"})
"""Verdicts that two machines can agree on."""
EMPTY = Cell(text=ABSENT, kind="text quiet place")


def techniques_of(board: Board) -> list[str]:
    """Return the names that can be compared on a board: those with its primary metric at some point."""
    metric = primary_metric(board.points)
    return sorted({label for p in board.points for label, name in p.cells if name == metric})


def pair_href(board: Board) -> str:
    """Return the page of a board's pairs from the top of the site."""
    return f"pairs/{board.slug}.html"


def place_name(board: Board) -> str:
    """Name the machine of a board, and how it was used."""
    return ", ".join(part for part in (board.runner, board.host_class, board.image_class) if part)


def pair_grid(board: Board, root: str) -> Grid:
    """Return every pair of a board's techniques at every point that both have, by the primary metric."""
    metric, keys = primary_metric(board.points), varying_params(board.points)
    bounds = load_family(board.family).metric(metric).range_of_values
    found: dict[tuple[str, str], list[tuple[Cell, ...]]] = {}
    for point in board.points:
        name = Cell(
            text=point_name(point, keys),
            href=f"{root}cases/{board.point_slug(point)}.html",
            kind="text broken",
        )
        values = {label: value_text(point, label, metric) for label, m in point.cells if m == metric}
        for duel in duels(point, metric):
            effect = format_effect(duel.effect, duel.kind, bounds, verdict=duel.verdict.name)
            row = (
                name,
                Cell(text=duel_text(duel), kind=_kind(duel)),
                Cell(text=effect, kind="num effect"),
                Cell(text=values[duel.first], kind="num"),
                Cell(text=values[duel.second], kind="num"),
            )
            found.setdefault((duel.first, duel.second), []).append(row)
    groups = tuple(
        tuple(
            (
                *(
                    Cell(text=n, kind="text key", header=True, rows=len(rows))
                    for n in (pair if i == 0 else ())
                ),
                *row,
            )
            for i, row in enumerate(rows)
        )
        for pair, rows in sorted(found.items())
    )
    ratio = load_family(board.family).metric(metric).compared_by == "ratio"
    names = (
        "point",
        "verdict",
        "first / second" if ratio else "first − second",
        "first's value",
        "second's value",
    )
    kinds = ("text", "text", "num", "num", "num")
    heads = (Cell(text="first", kind="text key"), Cell(text="second", kind="text key"))
    return Grid(
        title=f"pairs of {board.suite}",
        headers=(*heads, *(Cell(text=n, kind=k) for n, k in zip(names, kinds, strict=True))),
        groups=groups,
    )


def duel_text(duel: Duel) -> str:
    """Write which of two is better, or what is known instead."""
    name = duel.verdict.name
    if name in ("faster", "slower"):
        return f"{duel.first if name == 'faster' else duel.second} is {format_verdict('faster', duel.unit)}"
    if name == "equivalent":
        margin = (
            f"{duel.margin * 100:.3g} %" if duel.kind == "ratio" else format_quantity(duel.margin, duel.unit)
        )
        return f"{NO_DIFFERENCE}{margin}"
    return verdict_text(duel)


def _kind(duel: Duel) -> str:
    """Return a verdict's classes: neither of two is the one to which good and bad refer."""
    return {"faster": "text", "slower": "text", "equivalent": "text even"}.get(
        duel.verdict.name, "text quiet"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOnMachines:
    """A suite that was measured in several places."""

    suite: str
    family: str
    boards: tuple[Board, ...]

    @property
    def href(self) -> str:
        """Path of its page."""
        return f"machines/{slug(self.suite, 'machines')}.html"

    @property
    def places(self) -> list[str]:
        """Names of its places, in the order of the columns."""
        return [place_name(board) for board in self.boards]


def on_machines(boards: Sequence[Board]) -> list[SuiteOnMachines]:
    """Return the suites with points that comparable boards of two places or more have.

    Boards of another version of the suite, with another baseline, or under another contract are not set beside each
    other: of such groups the one with the most places is taken, and of these the newest version.
    """
    groups: dict[tuple[str, str], dict[tuple[int, str, str], list[Board]]] = {}
    for board in boards:
        metric = primary_metric(board.points)
        contract = next(
            (c.contract_id for p in board.points for (_, m), c in p.cells.items() if m == metric), ""
        )
        key = (board.points[0].suite_version, board.points[0].baseline, contract)
        groups.setdefault((board.family, board.suite), {}).setdefault(key, []).append(board)
    chosen = {
        name: max(of.items(), key=lambda item: (len(item[1]), item[0]))[1] for name, of in groups.items()
    }
    return [
        SuiteOnMachines(suite=suite, family=family, boards=tuple(sorted(own, key=place_name)))
        for (family, suite), own in sorted(chosen.items())
        if shared_points(own)
    ]


def shared_points(boards: Sequence[Board]) -> set[str]:
    """Return the points, by their parameters, that two of these boards or more have."""
    counts = Counter(params_key(p) for board in boards for p in board.points)
    return {key for key, count in counts.items() if count > 1}


def machine_grid(found: SuiteOnMachines, comparisons: Mapping[int, Sequence[Comparison]], root: str) -> Grid:
    """Return each technique against its baseline, point by point, with a column for each place."""
    everything = [point for board in found.boards for point in board.points]
    metric, keys = primary_metric(everything), varying_params(everything)
    here = [_measured_in(board, metric, comparisons, root) for board in found.boards]
    shared = shared_points(found.boards)
    names = {key: p for p in everything if (key := params_key(p)) in shared}
    groups = []
    for key, example in sorted(names.items(), key=lambda item: sort_key(item[1].params)):
        effects = [place.get(key, {}) for place in here]
        labels = sorted({label for own in effects for label in own})
        point = Cell(text=point_name(example, keys), kind="text key", header=True, rows=len(labels))
        rows = []
        for number, label in enumerate(labels):
            own = [of.get(label) for of in effects]
            agreed = _agree([measured.comparison for measured in own if measured])
            cells = [measured.cell if measured else EMPTY for measured in own]
            rows.append(
                (*([point] if number == 0 else []), Cell(text=label, kind="text technique"), agreed, *cells)
            )
        if rows:
            groups.append(tuple(rows))
    heads = (
        Cell(text="point", kind="text key"),
        Cell(text="technique", kind="text"),
        Cell(text="verdicts", kind="text all"),
        *(Cell(text=name, kind="text place broken") for name in found.places),
    )
    return Grid(title=f"{found.suite} by machine", headers=heads, groups=tuple(groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    comparison: Comparison
    cell: Cell


def _measured_in(
    board: Board, metric: str, comparisons: Mapping[int, Sequence[Comparison]], root: str
) -> dict[str, dict[str, _Measured]]:
    """Return for each point of a board, by its parameters, and each technique what it is to the baseline there."""
    found: dict[str, dict[str, _Measured]] = {}
    for point in board.points:
        all_of_point = comparisons.get(id(point), ())
        lost = losses(all_of_point)
        for c in all_of_point:
            if c.metric == metric:
                verdict = shown_verdict(qualified(c, lost.get((id(point), c.label))), c)
                cell = Cell(
                    text=f"{effect_text(c)}: {verdict}",
                    href=f"{root}cases/{board.point_slug(point)}.html",
                    kind=f"text place broken verdict {verdict_class(verdict)}",
                )
                found.setdefault(params_key(point), {})[c.label] = _Measured(comparison=c, cell=cell)
    return found


def _agree(found: Sequence[Comparison]) -> Cell:
    """Say whether the places that decided something decided the same."""
    decided = [c.verdict.name for c in found if c.verdict.name in DECIDED]
    if len(decided) < 2:
        return Cell(text=ABSENT, kind="text quiet all")
    same = len(set(decided)) == 1
    return Cell(text="agree" if same else "differ", kind="text all" if same else "text all price")
