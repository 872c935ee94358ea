"""What was found, in plain sentences: each is made from records by a rule, and goes when its verdict does.

| rule | which | how many |
|---|---|---|
| ``largest`` | of each family the largest decided gain in what its board is ranked by, quality kept (1) | 1 or more |
| ``but worse`` | the largest gain that quality was paid for | 1 |
| ``crossing`` | where the order of two techniques is decided to change, the largest swing, of different families | 2 |
| ``claim`` | papers' claims that did not hold, or fell short in part, premises met; the worst first, one a paper | 2 |
| ``changed`` | the newest change of a series over nights that matters | 1 |

All rules look at evidence of grade A or B, at intervals that tell a size, and at comparisons that are not constants. A
comparison that several kinds of processors measured counts once, by its newest measurement.

(1) Not of a suite one of whose claims says nothing, since an arm without the mechanism does as well: its baseline is
easily beaten. Nor of one that is consistent with a model alone, since what makes the effect was assumed. Nor of an arm
that a claim names as one without the mechanism: half as many steps take half the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from markupsafe import Markup

from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point, diagnostic
from paceline.analysis.trend import Alert
from paceline.report.boards.standing import Board
from paceline.report.boards.sweeps import Crossing, crossings_of
from paceline.report.claims.partly import gain_share, is_met
from paceline.report.findings import sentences
from paceline.report.runs.trends import Trend
from paceline.report.summaries.decided import on_one_processor
from paceline.report.tables.quality import Loss, at_risk, is_quality, losses
from paceline.report.tables.results import primary_metric
from paceline.report.words.estimates import ends_of_effect

MOST = 10
NUM_CROSSINGS, NUM_CLAIMS = 2, 2
EVIDENCE = frozenset("AB")
NOT_ITS_OWN = frozenset({"says nothing", "consistent with a model"})
"""Verdicts of claims in suites whose effects are not known to be the techniques'."""
FAILED = frozenset({"not reproduced", "partly"})
RULES: Mapping[str, str] = {
    "largest": "largest gain",
    "but worse": "gain at a price",
    "crossing": "where the order changes",
    "claim": "claim that did not fully hold",
    "changed": "what changed last",
}
"""What a rule is called on pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence with its chart."""

    rule: str
    family: str
    sentence: str
    chart: Markup
    href: str
    """Its page, from the site's root."""
    about: tuple[Comparison, ...] = ()
    """The comparisons that it states; none where it states a claim or a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What findings are made of: boards with their comparisons, the claims, and what changed lately."""

    boards: Sequence[Board]
    of: Callable[[Board], Sequence[Comparison]]
    claims: Sequence[ClaimResult] = ()
    papers: Mapping[str, str] = field(default_factory=dict)
    """Slug → verdict: a claim is told only where its paper has such a verdict, too."""
    alerts: Sequence[tuple[Trend, Alert]] = ()


def findings(known: Known, most: int = MOST) -> list[Finding]:
    """Return the findings, by rule; fewer where fewer rules find something.

    The largest gains come first, one of each family, and fill up what other rules leave.
    """
    ranked = _ranked(known)
    borrowed = {c.suite for c in known.claims if c.verdict in NOT_ITS_OWN}
    without = {(c.suite, c.null.technique) for c in known.claims if c.null is not None}
    gains = _gains([r for r in ranked if r.board.suite not in borrowed], without)
    first = _one_each(gains, lambda f: f.family)
    special = [
        *islice(_but_worse(ranked), 1),
        *islice(_crossings(known, ranked), NUM_CROSSINGS),
        *islice(_claims(known, ranked), NUM_CLAIMS),
        *islice(_changes(known), 1),
    ]
    if most > len(first):
        # Every family keeps its largest gain, however many there are.
        special = _some(special, most - len(first))
    chosen = [*first, *special]
    rest = [f for f in gains if f not in first]
    chosen += islice(rest, max(0, most - len(chosen)))
    return _some(chosen, most)


def _some(chosen: Sequence[Finding], most: int) -> list[Finding]:
    """Return so many by rule: the first of each rule, then the second of each, and so on."""
    turns: dict[str, int] = {}
    placed = []
    for finding in chosen:
        turns[finding.rule] = turns.get(finding.rule, 0) + 1
        placed.append((turns[finding.rule], list(RULES).index(finding.rule), finding))
    first = sorted(placed, key=lambda p: p[:2])[:most]
    return [finding for _, _, finding in sorted(first, key=lambda p: (p[1], p[0]))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """The comparisons of one board that count, in what the board is ranked by, with what was lost for them."""

    board: Board
    comparisons: tuple[Comparison, ...]
    lost: Mapping[tuple[int, str], Loss]
    risky: Collection[tuple[int, str]]
    """Those whose quality is not known to be kept."""

    def keeps(self, comparison: Comparison) -> bool:
        return (id(comparison.point), comparison.label) not in self.risky

    def loss(self, comparison: Comparison) -> Loss | None:
        return self.lost.get((id(comparison.point), comparison.label))


def _ranked(known: Known) -> list[_Ranked]:
    points = on_one_processor([p for board in known.boards for p in board.points])
    newest = {id(p) for p in points}
    found = []
    for board in known.boards:
        own = [c for c in known.of(board) if id(c.point) in newest]
        with_numbers = [p for p in board.points if p.cells]
        if not own or not with_numbers:
            continue
        primary = primary_metric(with_numbers)
        counts = tuple(c for c in own if c.metric == primary and _tells(c))
        found.append(_Ranked(board=board, comparisons=counts, lost=losses(own), risky=at_risk(own)))
    return found


def _tells(c: Comparison) -> bool:
    """Tell whether a comparison is evidence that a sentence can state with its size."""
    return (
        c.kind == "ratio"
        and c.grade in EVIDENCE
        and c.verdict.name in ("faster", "slower", "equivalent")
        and c.effect.method != "constant"
        and 0 < c.effect.value < math.inf
        and ends_of_effect(c.effect, c.kind).kind != "undecided"
        and not any(w.startswith("better than plausible") for w in c.warnings)
    )


def _size(c: Comparison) -> float:
    return abs(math.log(c.effect.value))


def _gains(ranked: Sequence[_Ranked], without: Collection[tuple[str, str]]) -> list[Finding]:
    """Return the gains that are known to keep their quality, the largest first, one of each suite.

    Args:
        ranked: Boards.
        without: Suites and labels of arms without a paper's mechanism: what they gain is what the paper has to beat.
    """
    found = [
        (c, r)
        for r in ranked
        for c in r.comparisons
        if c.verdict.name == "faster"
        and r.keeps(c)
        and not is_quality(c)
        and (r.board.suite, c.label) not in without
    ]
    found.sort(key=lambda pair: (-_size(pair[0]), pair[1].board.slug, pair[0].label))
    seen: dict[str, Finding] = {}
    for c, r in found:
        if r.board.suite not in seen:
            seen[r.board.suite] = Finding(
                rule="largest",
                family=r.board.family,
                sentence=sentences.gain_sentence(c, r.board),
                chart=sentences.gain_chart(c),
                href=_case(r.board, c.point),
                about=(c,),
            )
    return list(seen.values())


def _but_worse(ranked: Sequence[_Ranked]) -> Iterator[Finding]:
    """Yield the gains that quality was paid for, the largest first.

    A quality that its suite does not ask after is none to be told: at four rounds without tuning no loss says anything.
    """
    found = [
        (c, loss, r)
        for r in ranked
        for c in r.comparisons
        if c.verdict.name == "faster" and not is_quality(c) and (loss := r.loss(c)) is not None
    ]
    found.sort(key=lambda f: (-_size(f[0]), f[2].board.slug, f[0].label))
    for c, loss, r in found:
        if loss.comparison.grade in EVIDENCE and not _unasked(loss.comparison):
            yield Finding(
                rule="but worse",
                family=r.board.family,
                sentence=sentences.price_sentence(c, loss, r.board),
                chart=sentences.gain_chart(c, loss.comparison),
                href=_case(r.board, c.point),
                about=(c, loss.comparison),
            )


def _unasked(c: Comparison) -> bool:
    return c.metric in diagnostic(c.point.run, c.point.suite)


def _crossings(known: Known, ranked: Sequence[_Ranked]) -> Iterator[Finding]:
    """Yield decided crossings between techniques that keep their quality, the largest swing of each family."""
    found: list[tuple[float, Crossing, Board]] = []
    for r in ranked:
        counts = {id(c) for c in r.comparisons}
        for crossing in crossings_of(r.board, known.of(r.board)):
            if crossing.decided != "yes" or any(
                id(c) not in counts or not r.keeps(c) for c in crossing.sides
            ):
                continue
            found.append((sum(map(_size, crossing.sides)), crossing, r.board))
    found.sort(key=lambda f: (-f[0], f[2].slug, f[1].label, f[1].at))
    made = (
        Finding(
            rule="crossing",
            family=board.family,
            sentence=sentences.crossing_sentence(crossing, board),
            chart=sentences.crossing_chart(crossing),
            href=f"boards/{board.slug}.html",
            about=crossing.sides,
        )
        for _, crossing, board in found
    )
    yield from _one_each(made, lambda f: f.family)


def _claims(known: Known, ranked: Sequence[_Ranked]) -> Iterator[Finding]:
    """Yield papers' claims that did not hold, then those that held in part, the least part first."""
    boards = {r.board.suite: r.board for r in ranked}
    found = [
        c
        for c in known.claims
        if c.paper
        and c.verdict in FAILED
        and known.papers.get(c.paper, c.verdict) in FAILED
        and not is_met(c)
        and c.premise != "not met"
        and c.grade in EVIDENCE
        and c.worst is not None
        and math.isfinite(c.worst.value)
        and len(c.expect) == 1
        and c.suite in boards
    ]

    def order(c: ClaimResult) -> tuple[bool, float, str, str]:
        share = gain_share(c)
        return c.verdict != "not reproduced", 0.0 if share is None else share, c.suite, c.claim_id

    made = (
        (
            c.paper or "",
            Finding(
                rule="claim",
                family=boards[c.suite].family,
                sentence=sentences.claim_sentence(c),
                chart=sentences.claim_chart(c),
                href=f"claims.html#{c.paper}",
            ),
        )
        for c in sorted(found, key=order)
    )
    seen: set[str] = set()
    for paper, finding in made:
        if paper not in seen:
            seen.add(paper)
            yield finding


def _changes(known: Known) -> Iterator[Finding]:
    """Yield what changed lately, the newest first."""

    def begun(found: tuple[Trend, Alert]) -> str:
        history, change = found[1].history, found[1].change
        return history.nights[change.at].started

    for trend, alert in sorted(known.alerts, key=begun, reverse=True):
        yield Finding(
            rule="changed",
            family=trend.board.family,
            sentence=sentences.change_sentence(trend, alert),
            chart=sentences.change_chart(alert),
            href=trend.href,
        )


def _case(board: Board, point: Point) -> str:
    return f"cases/{board.point_slug(point)}.html"


def _one_each(found: Iterable[Finding], key: Callable[[Finding], str]) -> list[Finding]:
    """Return the first finding of each kind."""
    first: dict[str, Finding] = {}
    for finding in found:
        first.setdefault(key(finding), finding)
    return list(first.values())
