"""Claims in words, for tables and pages; and those that were measured, as a Markdown page.

A verdict can be checked by eye: numbers have as many digits as it takes to lie, as written, on the side of what was
asked on which they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from paceline.analysis.claims import ClaimResult
from paceline.base.counting import number_of
from paceline.base.family import load_family
from paceline.report.boundedtext import with_ends
from paceline.report.premisetext import (
    WHOSE,
    premises_text,
    remarks_text,
    said_text,
    scale_text,
    settled_text,
)
from paceline.report.shown import ABSENT, ends_of_effect, format_effect, format_estimate
from paceline.report.tables import format_param
from paceline.spec.papers import Paper
from paceline.stats.estimates import Estimate

OWN_BOUND = "(own bound)"
"""Stands where a paper's slug would, for claims that no paper makes."""
STATEMENT, PAPERS_NUMBER = "what it says, in our words", "the paper's number"
HEADERS = (
    *("paper", STATEMENT, "whose number", PAPERS_NUMBER, "measured", "asked", "found, and our scale"),
    *("verdict", "premises", "what would settle it", "evidence"),
)
RUN_CHARS = 13
"""Of a run's id: the instant at which it began, to the millisecond."""


def sides(claim: ClaimResult) -> str:
    """Say whose number a claim is about, against whose, and at which points."""
    both = f"{claim.technique} / {claim.versus}" if claim.versus else claim.technique
    return f"{both} where {claim.where}" if claim.where else both


def found_text(claim: ClaimResult) -> str:
    """Write the estimate that decided a claim, with the ends of its interval; of equality how far off it is.

    The interval stands there by few launches, too: the verdict rests on it, and a reader can check it.
    """
    found = claim.worst
    if found is None:
        return ABSENT
    ratio = bool(claim.versus) and "ratio" in claim.expectation
    if found.missed or not math.isfinite(found.value):
        return format_effect(found, "ratio" if ratio else "") if claim.versus else format_estimate(found, "")
    found = _inside(found, claim, ratio=ratio)
    bounds = tuple(claim.expect.values())
    if claim.verdict == "inconclusive" and _says_nothing(found, ratio=ratio):
        return (
            f"{found.value:.3g}{' ×' if ratio else ''}, undecided ({number_of(found.num_launches, 'launch')})"
        )
    if "equal_within" in claim.expect:
        name = "ratio" if claim.versus else "value"
        return f"{name} − 1 = {with_ends(_off_one(found), (-bounds[0], bounds[0]))}"
    return with_ends(found, bounds, " ×" if ratio else "")


def _inside(found: Estimate, claim: ClaimResult, *, ratio: bool) -> Estimate:
    """Return an estimate whose ends lie where the metric, or the difference of two of its values, can lie."""
    low, high = load_family(claim.suite.partition("/")[0]).metric(claim.metric).range_of_values
    if ratio or found.low is None or found.high is None or not low <= found.value <= high:
        return found
    if claim.versus:
        low, high = low - high, high - low
    return replace(found, low=max(found.low, low), high=min(found.high, high))


def _says_nothing(found: Estimate, *, ratio: bool) -> bool:
    return ratio and ends_of_effect(found, "ratio").kind == "undecided"


def _off_one(found: Estimate) -> Estimate:
    low, high = (None if end is None else end - 1 for end in (found.low, found.high))
    return replace(found, value=found.value - 1, low=low, high=high)


def decided_by(claim: ClaimResult) -> str:
    """Name the run that decided a claim, and of several points the one."""
    if claim.run_id is None:
        return ""
    text = f"run {claim.run_id[:RUN_CHARS]}"
    worst = next((params for params, estimate in claim.points if estimate is claim.worst), {})
    varying = [k for k, v in worst.items() if any(p.get(k) != v for p, _ in claim.points)]
    at = ", ".join(f"{k} = {format_param(k, worst[k])}" for k in varying)
    return f"{text} at {at}" if at else text


def claims_page(
    claims: Sequence[ClaimResult], counts: Mapping[str, int], papers: Mapping[str, Paper], *, command: str
) -> str:
    """Return the page.

    Args:
        claims: All claims; those that nobody measured are counted alone.
        counts: Papers by verdict.
        papers: The ledger.
        command: What writes this page.
    """
    measured = [c for c in claims if c.verdict != "not run"]
    lines = [
        "# What was measured of what papers say",
        "",
        f"Written by `{command}`. {number_of(sum(counts.values()), 'paper')}: "
        + ", ".join(f"{number} {name}" for name, number in counts.items())
        + ". A paper has the worst verdict of its claims.",
        f"Below are the {number_of(len(measured), 'claim')} that a run decided; {len(claims) - len(measured)} "
        "more wait for one "
        "(`paceline claims`). A verdict needs the whole 95 % interval on one side. Where a claim is about several "
        "points, the worst is shown; the suite's board on the site has all. Numbers have as many digits as it takes "
        "to see on which side of what was asked they lie.",
        "",
        "A claim expects the paper's own number, a testable form of its statement that is ours, or, as a bound of the "
        "suite, something that no paper says; the first two alone make a paper's verdict. Its premises are what must "
        "hold in the run for its number to speak: where one of them does not, the claim is *not testable here*, "
        "whatever was found, and the premise says by how much it fails and what would meet it.",
        "",
        "Evidence is graded: A is confirmed by another run, B has five launches or more, C has fewer, or code that "
        "was not committed, D was imported. Beside it stands the run, by the beginning of its record's name, and of "
        "several points the one that decided. On the site (`paceline site build`) a verdict leads to that point's "
        "page, with its samples and curves.",
    ]
    for family in dict.fromkeys(c.suite.split("/")[0] for c in measured):
        lines += ["", f"## {family.capitalize()}", "", _row(HEADERS), _row("---" for _ in HEADERS)]
        lines += _rows([c for c in measured if c.suite.startswith(f"{family}/")], papers)
    return "\n".join(lines) + "\n"


def _rows(claims: Iterable[ClaimResult], papers: Mapping[str, Paper]) -> Iterator[str]:
    for claim in claims:
        paper = papers[claim.paper].title.split(":")[0] if claim.paper else OWN_BOUND
        what = f"{claim.metric} of {sides(claim)} ({claim.suite})"
        verdict = claim.verdict if claim.verdict == "reproduced" else f"**{claim.verdict}**"
        if claim.verdict == "not reproduced" and claim.premise == "met":
            verdict += " (premises met)"
        shown = (claim.grade, claim.host_class, decided_by(claim), remarks_text(claim))
        evidence = "; ".join(text for text in shown if text)
        scale = scale_text(claim)
        found = f"{found_text(claim)} ({scale})" if scale else found_text(claim)
        cells = (paper, claim.quote, WHOSE[claim.whose], said_text(claim), what, claim.expectation, found)
        yield _row((*cells, verdict, premises_text(claim), settled_text(claim), evidence))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
