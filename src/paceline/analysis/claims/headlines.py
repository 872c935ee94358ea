"""Papers: what each says, headline by headline, and which verdict follows for the paper.

A paper's sheet names its headlines, and for each the claims that test it, or why none does. The paper's verdict is the
worst of its tested headlines; it is reproduced where all of them are tested and hold, and partly tested where those
that are tested hold and others are not. What only conforms (bytes, closed forms, bounds of ours) tests no headline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.analysis.claims.reproductions import LESS
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.claims.verdicts import CONFORMANCE, NOT_RUN, UNTESTABLE, WORST_FIRST
from paceline.spec.ledger.papers import Headline, Paper
from paceline.spec.ledger.premises import SettledBy

PARTLY_TESTED = "partly tested"
NO_SHEET = "the paper's headlines are not listed yet"
OUTSIDE = "outside"
BEYOND: frozenset[SettledBy] = frozenset({"gpu", "parameters"})
"""What settles a claim and is not here."""
TESTED_ORDER = (*WORST_FIRST[:2], "says nothing", "consistent with a model", *WORST_FIRST[2:])
"""Verdicts of a tested headline: of several claims, and of several headlines, the first counts."""
COUNTED_ORDER = ("does not conform", "conforms in part", "conforms")
"""What several conformances of a headline come to: the first that one of them has."""
PAPER_VERDICTS = (*TESTED_ORDER[:-1], PARTLY_TESTED, "reproduced", UNTESTABLE, NOT_RUN, OUTSIDE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineResult:
    """One headline of a paper with the claims that test it."""

    headline: Headline
    results: tuple[ClaimResult, ...] = ()
    """Its claims, those that only conform among them."""
    verdict: str = NOT_RUN

    @property
    def tested(self) -> bool:
        """Whether a run decided something of it."""
        return self.verdict in TESTED_ORDER

    @property
    def in_direction_alone(self) -> bool:
        """Whether a model goes in the paper's direction, and not as far as was asked of all that it was asked."""
        models = [r for r in self.results if r.verdict == "consistent with a model"]
        return self.verdict == "consistent with a model" and any(LESS in (r.reason or "") for r in models)

    @property
    def undecided(self) -> tuple[ClaimResult, ...]:
        """Its conformances that more launches might decide."""
        return tuple(r for r in self.results if not r.reproduces and r.verdict == "inconclusive")

    @property
    def within_reach(self) -> bool:
        """Whether this machine could test it and nothing has: a claim is left to write, or a run to be made here."""
        waiting = [r for r in self.results if r.reproduces and r.verdict == NOT_RUN]
        undone = any(not BEYOND.intersection(r.settled_by) for r in waiting) or bool(self.undecided)
        return self.verdict == NOT_RUN and (bool(self.headline.untested) or undone)

    @property
    def how(self) -> str:
        """Say how it is tested: itself, in another form, by counts that conform or do not, or not at all."""
        if self.verdict in CONFORMANCE.values():
            return "counted"
        if not self.tested:
            return "not tested"
        return "tested in another form" if self.headline.form else "tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One paper with the verdicts of its headlines and claims, or the reason why there is none."""

    paper: Paper
    results: tuple[ClaimResult, ...] = ()
    headlines: tuple[HeadlineResult, ...] = ()
    verdict: str = NOT_RUN
    reason: str | None = None

    @property
    def settled_by(self) -> tuple[SettledBy, ...]:
        """What would settle its claims and the headlines that nothing tests, each once."""
        claims = [s for result in self.results for s in result.settled_by]
        sheet = [h.headline.settled_by for h in self.headlines if h.headline.settled_by is not None]
        return tuple(dict.fromkeys((*claims, *sheet)))

    @property
    def premise(self) -> tuple[str, ...]:
        """How the premises of its claims stand, each once; none where no claim states any."""
        return tuple(dict.fromkeys(r.premise for r in self.results if r.premises)) or ("none",)


@dataclass(slots=True)
class Ledger:
    """All papers with what is known of their claims."""

    rows: list[LedgerRow] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Number of papers by verdict."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.verdict] = counts.get(row.verdict, 0) + 1
        return dict(sorted(counts.items()))


def ledger(papers: Mapping[str, Paper], results: Iterable[ClaimResult]) -> Ledger:
    """Give every paper a verdict or the reason why it has none."""
    by_paper: dict[str, list[ClaimResult]] = {}
    for result in results:
        if result.paper is not None:
            by_paper.setdefault(result.paper, []).append(result)
    return Ledger(rows=[_row(paper, by_paper.get(paper.slug, ())) for paper in papers.values()])


def _row(paper: Paper, results: Sequence[ClaimResult]) -> LedgerRow:
    headlines = tuple(_headlines(paper, results))
    verdict, reason = _verdict(paper, results, headlines)
    return LedgerRow(paper=paper, results=tuple(results), headlines=headlines, verdict=verdict, reason=reason)


def _headlines(paper: Paper, results: Sequence[ClaimResult]) -> Iterator[HeadlineResult]:
    """Yield the rows of a paper's sheet, and one for each claim on no row that quotes it, or that is not upheld."""
    listed: set[str] = set()
    for headline in paper.headlines:
        listed.update(headline.claims)
        own = tuple(r for r in results if r.claim_id in headline.claims)
        yield HeadlineResult(headline=headline, results=own, verdict=_of_claims(headline, own))
    for result in results:
        if result.reproduces and result.claim_id not in listed:
            said = Headline(says=result.said["number"], place=result.said["place"], claims=(result.claim_id,))
            yield HeadlineResult(headline=said, results=(result,), verdict=_of_claims(said, (result,)))
        elif result.verdict not in ("conforms", NOT_RUN) and result.claim_id not in listed:
            ours = Headline(says=result.quote, place="our words, on no sheet", claims=(result.claim_id,))
            yield HeadlineResult(headline=ours, results=(result,), verdict=_of_claims(ours, (result,)))


def _of_claims(headline: Headline, results: Sequence[ClaimResult]) -> str:
    """Return the worst verdict of the claims that reproduce; what none of them decided is no test."""
    if headline.untestable:
        return UNTESTABLE
    found = [r.verdict for r in results if r.reproduces]
    tested = [v for v in found if v in TESTED_ORDER]
    if tested:
        return min(tested, key=TESTED_ORDER.index)
    if UNTESTABLE in found:
        return UNTESTABLE
    if NOT_RUN in found:
        return NOT_RUN
    return _counted([r.verdict for r in results])


def _counted(verdicts: Sequence[str]) -> str:
    """Return what several conformances come to: the worst, and in part where some are undecided."""
    counted = [v for v in COUNTED_ORDER if v in verdicts]
    if not counted:
        return NOT_RUN
    return "conforms in part" if counted[0] == "conforms" and "inconclusive" in verdicts else counted[0]


def _verdict(
    paper: Paper, results: Sequence[ClaimResult], headlines: Sequence[HeadlineResult]
) -> tuple[str, str | None]:
    if paper.family == OUTSIDE:
        return OUTSIDE, paper.outside_reason
    if not results and not headlines:
        return NOT_RUN, _why_no_claim(paper)
    tested = [h for h in headlines if h.tested]
    untested = [h for h in headlines if not h.tested]
    remarks = [f"not tested: {_untested_text(h)}" for h in untested]
    if not paper.headlines:
        remarks.append(NO_SHEET)
    reason = "; ".join(remarks) or None
    if tested:
        worst = min((h.verdict for h in tested), key=TESTED_ORDER.index)
        if worst == "reproduced" and remarks:
            worst = PARTLY_TESTED
        return worst, reason
    out_of_reach = [h for h in untested if h.verdict == UNTESTABLE]
    # a headline that could be tested here is left undone, whatever premises keep others from a verdict
    if out_of_reach and not any(h.within_reach for h in untested):
        return UNTESTABLE, reason
    return NOT_RUN, reason


def _untested_text(row: HeadlineResult) -> str:
    headline = row.headline
    if headline.untestable:
        return f"{headline.says} ({headline.untestable})"
    if headline.untested:
        return f"{headline.says} (wants {headline.untested})"
    if row.verdict == UNTESTABLE:
        own = next(r for r in row.results if r.verdict == UNTESTABLE)
        return f"{headline.says} ({own.reason})"
    if instead := next((r for r in row.results if r.against and not r.reproduces), None):
        return f"{headline.says} (against another than its paper's opponent it {instead.verdict})"
    if row.verdict == NOT_RUN and row.undecided:
        return f"{headline.says} (what was counted is inconclusive)"
    if row.verdict == NOT_RUN:
        own_reason = next((r.reason for r in row.results if r.verdict == NOT_RUN), "no claim measures it")
        return f"{headline.says} ({own_reason})"
    return f"{headline.says} (what was counted {row.verdict})"


def _why_no_claim(paper: Paper) -> str:
    if paper.testable_claim.startswith("none"):
        return paper.testable_claim.removeprefix("none").lstrip(": ") or "nothing testable here"
    if paper.needs:
        return f"no claim declared yet; needs {', '.join(paper.needs)}"
    return "no claim declared yet"


def conforming(results: Iterable[ClaimResult]) -> str:
    """Say how many of a paper's conformances hold; nothing where it has none."""
    found = [r.verdict for r in results if r.verdict in CONFORMANCE.values()]
    if not found:
        return ""
    return f"conformances that hold: {found.count('conforms')} of {len(found)}"
