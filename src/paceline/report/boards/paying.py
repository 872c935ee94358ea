"""When a technique pays and when not: how its comparisons with the baseline ended, board by board, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point, headline
from paceline.base.counting import number_of
from paceline.report.boards.places import place_text
from paceline.report.boards.standing import Board
from paceline.report.tables.quality import Loss, losses
from paceline.report.tables.results import primary_metric, varying_params
from paceline.report.words.estimates import format_effect
from paceline.report.words.names import metric_label

MOST_PLACES = 3
"""Points that a sentence names; of more it says how many there are."""
PAYS, COSTS, PRICE, EVEN, OPEN = "pays", "costs", "price", "even", "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One board's answer to when a technique pays."""

    text: str
    href: str
    """The board, from the site's root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paying:
    """When it pays, when it does not, and where that is not known."""

    pays: tuple[Line, ...] = ()
    not_paying: tuple[Line, ...] = ()
    unknown: tuple[Line, ...] = ()


@dataclass(slots=True)
class _Ends:
    """How the comparisons of one technique on one board ended."""

    found: dict[str, list[Comparison]] = field(default_factory=dict)
    lost: dict[tuple[int, str], Loss] = field(default_factory=dict)

    def add(self, comparison: Comparison) -> None:
        end = {"faster": PAYS, "slower": COSTS, "equivalent": EVEN}.get(comparison.verdict.name, OPEN)
        if end == PAYS and (id(comparison.point), comparison.label) in self.lost:
            end = PRICE
        self.found.setdefault(end, []).append(comparison)


def paying(
    name: str,
    uses: Sequence[tuple[Board, str, Sequence[Point]]],
    comparisons: Mapping[int, Sequence[Comparison]],
) -> Paying:
    """Return when a technique pays, by the metric that each board is ranked by; with gains in its other headlines.

    Args:
        name: Of the technique.
        uses: Board, the technique's name there, and the points where it was tried.
        comparisons: By ``id`` of a point all of its comparisons.
    """
    pays: list[Line] = []
    costs: list[Line] = []
    unknown: list[Line] = []
    for board, label, points in uses:
        own = [c for p in points for c in comparisons.get(id(p), ())]
        ranked_by, lost = primary_metric(board.points), losses(own)
        for metric in _asked(board, ranked_by):
            ends = _Ends(lost=lost)
            for c in own:
                if c.label == label and c.metric == metric:
                    ends.add(c)
            count = sum(map(len, ends.found.values()))
            for end, kept in ((PAYS, pays), (COSTS, costs), (PRICE, costs), (EVEN, costs), (OPEN, unknown)):
                if (of_end := ends.found.get(end)) and (metric == ranked_by or end in (PAYS, PRICE)):
                    text = _sentence(board, end, of_end, count, lost)
                    known_as = "" if label == name else f"as {label}, "
                    kept.append(Line(text=known_as + text, href=f"boards/{board.slug}.html"))
    return Paying(pays=tuple(pays), not_paying=tuple(costs), unknown=tuple(unknown))


def _asked(board: Board, ranked_by: str) -> list[str]:
    """Return the metric that a board is ranked by, then the others that its newest suite asks after."""
    newest = max((p.run for p in board.points), key=lambda run: run.run_id)
    return [ranked_by, *(name for name in headline(newest, board.suite) if name != ranked_by)]


def _sentence(
    board: Board,
    end: str,
    found: Sequence[Comparison],
    count: int,
    lost: Mapping[tuple[int, str], Loss],
) -> str:
    """Say how some comparisons of a board ended, at how many of its points, and of the best how large it is."""
    first = found[0]
    sign = 1 if first.better == "lower" else -1
    ordered = sorted(found, key=lambda c: sign * c.effect.value, reverse=end == COSTS)
    best = ordered[0]
    where = _places(board, ordered, count)
    shown = format_effect(best.effect, best.kind, verdict=best.verdict.name)
    metric, baseline = metric_label(first.metric), first.point.baseline
    at = f"{board.suite} ({board.runner}, {board.host_class}), {where}"
    if end == OPEN:
        return f"{at}: not told apart from {baseline} in {metric}"
    if end == EVEN:
        margin = f"{first.margin * 100:.3g} %" if first.kind == "ratio" else f"{first.margin:g}"
        return f"{at}: no difference in {metric} to {baseline} above {margin}"
    ends = "at best" if end in (PAYS, PRICE) else "at worst"
    size = f"{ends} {shown}" if len(found) > 1 else shown
    text = f"{at}: {size} the {metric} of {baseline}"
    if best.kind == "difference":
        side = "higher" if best.effect.value > 0 else "lower"
        text = f"{at}: {metric} is {side} than {baseline}'s ({size})"
    if end == PRICE:
        text += f", but worse (by {lost[(id(best.point), best.label)].text})"
    return text


def _places(board: Board, found: Sequence[Comparison], count: int) -> str:
    """Name the points, or say how many they are."""
    keys = varying_params(board.points)
    if len(found) == count:
        return "at its one point" if count == 1 else f"at all {number_of(count, 'point')}"
    if len(found) > MOST_PLACES or not keys:
        return f"at {len(found)} of {number_of(count, 'point')}"
    return "at " + "; ".join(place_text(c.point, keys) for c in found)
