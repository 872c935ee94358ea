"""Claims in words, for tables and pages; and those that were measured, as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from paceline.claims import ClaimResult
from paceline.papers import Paper
from paceline.report.tables import ABSENT, format_effect, format_estimate

OWN_BOUND = "(own bound)"
"""Stands where a paper's slug would, for claims that no paper makes."""
HEADERS = ("paper", "what it says", "measured", "asked", "found", "verdict", "evidence")


def sides(claim: ClaimResult) -> str:
    """Say whose number a claim is about, against whose, and at which points."""
    both = f"{claim.technique} / {claim.versus}" if claim.versus else claim.technique
    return f"{both} where {claim.where}" if claim.where else both


def found_text(claim: ClaimResult) -> str:
    """Write the estimate that decided a claim."""
    if claim.worst is None:
        return ABSENT
    if claim.versus:
        return format_effect(claim.worst, "ratio" if "ratio" in claim.expectation else "")
    return format_estimate(claim.worst, "")


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
        f"Written by `{command}`. {sum(counts.values())} papers: "
        + ", ".join(f"{number} {name}" for name, number in counts.items())
        + ". A paper has the worst verdict of its claims.",
        f"Below are the {len(measured)} claims that a run decided; {len(claims) - len(measured)} more wait for one "
        "(`paceline claims`). A verdict needs the whole 95 % interval on one side. Where a claim is about several "
        "points, the worst is shown; the suite's board on the site has all.",
        "",
        "Evidence is graded: A is confirmed by another run, B has five launches or more, C has fewer, or code that was "
        "not committed, D was imported.",
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
        shown = (claim.grade, claim.host_class, claim.reason)
        evidence = "; ".join(text for text in shown if text)
        yield _row((paper, claim.quote, what, claim.expectation, found_text(claim), verdict, evidence))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
