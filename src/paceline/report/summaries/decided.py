"""What some runs have decided, in a few lines that a person reads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.analysis.compare import Comparison, compare_points
from paceline.analysis.evidence import image_class, params_key
from paceline.analysis.points import Point, headline, points_of
from paceline.base.counting import number_of
from paceline.records.earlier_runs import read_times
from paceline.records.store.folder import RunRecord
from paceline.records.store.lookup import find_runs
from paceline.report.boards.standing import select
from paceline.report.tables.results import format_param, is_virtual, varying_params
from paceline.report.words.estimates import ends_of_effect, format_effect, format_verdict
from paceline.report.words.names import metric_label
from paceline.stats.verdicts import MANY_LAUNCHES

LARGEST = 5
MOST_OPEN = 5
NO_DIRECTION = "neither direction of this metric is better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The headline comparisons of some points: which are decided, and which are not."""

    decided: Sequence[Comparison]
    undecided: Sequence[Comparison]
    places: Mapping[tuple[str, str], str]
    """(suite, block) → what tells a point from the others of its suite."""
    published: frozenset[str] = frozenset()
    """Runs that are published, and of other machines."""

    @property
    def num(self) -> int:
        """How many comparisons there are."""
        return len(self.decided) + len(self.undecided)

    def where(self, comparison: Comparison) -> str:
        """Name the suite and point of a comparison."""
        point = comparison.point
        place = self.places[(point.suite, point.block)]
        mark = "; published" if point.run.run_id in self.published else ""
        return f"{point.suite}{f', {place}' if place else ''}{mark}"

    def of_others(self, comparison: Comparison) -> bool:
        """Say whether a comparison is of a published run."""
        return comparison.point.run.run_id in self.published


def newest_points(roots: Sequence[Path], suites: Sequence[str]) -> list[Point]:
    """Return the points of each suite's newest run in some stores, in the order of the suites; of unmeasured ones none.

    Raises:
        UserError: A record cannot be read.
    """
    times = read_times(roots)
    newest = {suite: t.run_id for t in times for suite in t.suites}
    records = {r.run_id: r for r in find_runs(roots, {newest[s] for s in suites if s in newest})}
    return [
        point for s in suites if s in newest for point in points_of(records[newest[s]]) if point.suite == s
    ]


def board_points(records: Iterable[RunRecord]) -> list[Point]:
    """Return the points that the leaderboard shows: of each the best evidence."""
    return [point for board in select(records).boards for point in board.points]


def on_one_processor(points: Sequence[Point]) -> list[Point]:
    """Return the points with those of processors alone once each: where several kinds measured one, the newest counts.

    Accelerators are what a reader chooses between, and all stay; which processor a night was given is chance. A suite's
    newest version that processors measured counts: as on a board, points of an earlier one never stand beside it.
    """

    def on_processors(point: Point) -> bool:
        return bool((point.run.device or {}).get("kind", "cpu") == "cpu")

    def key(point: Point) -> tuple[object, ...]:
        host = None if on_processors(point) else point.run.host_class
        return (host, point.suite, point.board[2], image_class(point.run), params_key(point))

    versions: dict[str, int] = {}
    for point in filter(on_processors, points):
        versions[point.suite] = max(point.suite_version, versions.get(point.suite, 0))
    current = [p for p in points if not on_processors(p) or p.suite_version == versions[p.suite]]
    newest: dict[tuple[object, ...], str] = {}
    for point in current:
        newest[key(point)] = max(point.run.run_id, newest.get(key(point), ""))
    return [point for point in current if newest[key(point)] == point.run.run_id]


def summarise(points: Sequence[Point], *, published: frozenset[str] = frozenset()) -> Summary:
    """Say what the headline comparisons of some points have decided; those of ``published`` runs come last.

    What more launches could not decide is no comparison: a difference in a metric of which no direction is better, and
    a ratio to zero.
    """
    found = summarise_comparisons(points, compare_points(points))
    found = replace(found, published=published)
    decided, undecided = (sorted(part, key=found.of_others) for part in (found.decided, found.undecided))
    return replace(found, decided=decided, undecided=undecided)


def summarise_comparisons(points: Sequence[Point], comparisons: Iterable[Comparison]) -> Summary:
    """Say the same of comparisons that were made already; ``points`` are theirs."""
    names = {(p.run.run_id, p.suite): set(headline(p.run, p.suite)) for p in points}
    found = [
        c
        for c in comparisons
        if c.metric in names[(c.point.run.run_id, c.point.suite)]
        and c.verdict.reason != NO_DIRECTION
        and math.isfinite(c.effect.value)
    ]
    by_suite: dict[str, list[Point]] = {}
    for point in points:
        by_suite.setdefault(point.suite, []).append(point)
    places = {
        (p.suite, p.block): ", ".join(
            f"{name} {format_param(name, p.params[name])}" for name in varying_params(own) if name in p.params
        )
        for own in by_suite.values()
        for p in own
    }
    return Summary(
        decided=[c for c in found if c.verdict.name != "inconclusive"],
        undecided=[c for c in found if c.verdict.name == "inconclusive"],
        places=places,
    )


def largest(summary: Summary) -> list[Comparison]:
    """Return the largest effects: ratios by their distance from 1, one of each technique of a suite."""
    ratios = [
        c
        for c in summary.decided
        if c.kind == "ratio" and c.verdict.name != "equivalent" and 0 < c.effect.value < math.inf
    ]
    kept: dict[tuple[str, str], Comparison] = {}
    for comparison in sorted(ratios, key=lambda c: (summary.of_others(c), -abs(math.log(c.effect.value)))):
        kept.setdefault((comparison.point.suite, comparison.label), comparison)
    return list(kept.values())[:LARGEST]


def effect_sentence(summary: Summary, comparison: Comparison) -> str:
    """Say an effect in one sentence: ``ring has 1.8 × [1.6, 2] the latency of native (tour/all-reduce, …): slower.``"""
    verdict = comparison.verdict.name
    shown = format_effect(comparison.effect, comparison.kind, verdict=verdict)
    if ends_of_effect(comparison.effect, comparison.kind).kind == "undecided":
        shown = f"about {comparison.effect.value:.3g} ×"
    word = format_verdict(verdict, comparison.unit)
    return (
        f"{comparison.label} has {shown} the {_named(comparison)} of {comparison.point.baseline} "
        f"({summary.where(comparison)}): {word}."
    )


def _named(comparison: Comparison) -> str:
    """Name the metric of a comparison; times that a model plays are called so."""
    label = metric_label(comparison.metric)
    told = label.startswith("simulated") or not is_virtual(comparison.point.family, comparison.metric)
    return label if told else f"simulated {label}"


def open_sentence(summary: Summary, comparison: Comparison) -> str:
    """Say what could not be told apart, and why."""
    count = comparison.effect.num_launches
    launches = number_of(count, "launch")
    shown = format_effect(comparison.effect, comparison.kind)
    needed = comparison.verdict.launches_needed
    why = comparison.verdict.reason or "the interval includes no change"
    if needed is not None and count > 1:
        number = f"{needed} or more" if needed >= MANY_LAUNCHES else f"about {needed}"
        why += f"; {number} launches would make it as narrow as the margin"
    return (
        f"{comparison.label} and {comparison.point.baseline} in {_named(comparison)} "
        f"({summary.where(comparison)}): {shown} after {launches}; {why}."
    )


def summary_lines(summary: Summary) -> list[str]:
    """Return the summary as text: how many were decided, the largest effects, what is open, and what to try next."""
    if not summary.num:
        return ["No run here compares anything yet: paceline run tour/all-reduce"]
    counts = Counter(c.verdict.name for c in summary.decided)
    better, worse, equal = counts["faster"], counts["slower"], counts["equivalent"]
    lines = [
        f"{len(summary.decided)} of {summary.num} headline comparisons are decided: {better} faster or better than the "
        f"baseline, {worse} slower or worse, {equal} equivalent."
    ]
    if others := sum(map(summary.of_others, [*summary.decided, *summary.undecided])):
        lines.append(f"  {others} of them are of published runs, of other machines; they come last")
    families = _by_family(summary)
    if len(families) > 1:
        lines += [f"  {name}: {decided} of {number}" for name, (decided, number) in families.items()]
    if effects := largest(summary):
        lines += ["", "The largest effects:"]
        lines += [f"  {effect_sentence(summary, c)}" for c in effects]
    if summary.undecided:
        lines += ["", "Not told apart:"]
        lines += [f"  {open_sentence(summary, c)}" for c in summary.undecided[:MOST_OPEN]]
        if len(summary.undecided) > MOST_OPEN:
            lines.append(f"  … and {len(summary.undecided) - MOST_OPEN} more (--json)")
    return [*lines, "", "What to try next:", *(f"  {line}" for line in _next(summary))]


def _by_family(summary: Summary) -> dict[str, tuple[int, int]]:
    families = list(dict.fromkeys(c.point.family for c in [*summary.decided, *summary.undecided]))
    return {
        name: (
            sum(c.point.family == name for c in summary.decided),
            sum(c.point.family == name for c in [*summary.decided, *summary.undecided]),
        )
        for name in families
    }


def _next(summary: Summary) -> list[str]:
    suites = list(dict.fromkeys(c.point.suite for c in summary.undecided))
    lines = (
        [f"paceline run {' '.join(suites[:3])} --budget 5min   # launches until decided"] if suites else []
    )
    return [
        *lines,
        "paceline site open   # the tables and charts of these runs, in a browser",
        "paceline list suites   # what else can be measured here",
        "paceline new technique my-lab/first   # begins one of your own, from a working example",
    ]


def summary_facts(summary: Summary) -> dict[str, Any]:
    """Return the summary as plain data."""
    return {
        "num_comparisons": summary.num,
        "num_decided": len(summary.decided),
        "num_published": sum(map(summary.of_others, [*summary.decided, *summary.undecided])),
        "share_undecided": len(summary.undecided) / summary.num if summary.num else None,
        "verdicts": dict(sorted(Counter(c.verdict.name for c in summary.decided).items())),
        "families": {
            name: {"num_comparisons": number, "num_decided": decided}
            for name, (decided, number) in _by_family(summary).items()
        },
        "largest": [effect_sentence(summary, c) for c in largest(summary)],
        "undecided": [open_sentence(summary, c) for c in summary.undecided],
    }
