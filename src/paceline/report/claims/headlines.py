"""A paper's headlines in words: what it says, what was found, what the null arm gives, and what is not tested."""

from __future__ import annotations

from paceline.analysis.claims.headlines import HeadlineResult
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.claims.verdicts import CONFORMANCE
from paceline.report.claims.premises import SETTLES
from paceline.report.claims.text import costs_text, found_text, sides
from paceline.report.words.bounds import with_ends
from paceline.report.words.estimates import ABSENT
from paceline.report.words.names import metric_label

HEADLINE_HEADERS = ("what the paper says", "what was found", "without the mechanism", "verdict", "not tested")


def null_text(claim: ClaimResult) -> str:
    """Say what an arm without the mechanism came to in the place of the side that has it."""
    null = claim.null
    if null is None:
        return "no such arm" if claim.reproduces else ABSENT
    if not null.technique:
        return "no effect"
    if null.estimate is None:
        return f"{null.technique}: not in these runs"
    ratio = " ×" if claim.versus and "ratio" in claim.expectation else ""
    return f"{null.technique}: {with_ends(null.estimate, tuple(claim.expect.values()), ratio)}"


def headline_cells(row: HeadlineResult) -> tuple[str, str, str, str, str]:
    """Return a headline's cells, in the order of ``HEADLINE_HEADERS``."""
    headline = row.headline
    says = f"{headline.says} ({headline.place})"
    shown = [
        c
        for c in row.results
        if c.worst is not None
        and (c.reproduces or c.against or c in row.undecided or row.verdict in CONFORMANCE.values())
    ]
    found = "; ".join(
        f"{metric_label(c.metric)} of {sides(c)}: {found_text(c)}, asked {c.expectation}{_costs(c)}"
        for c in shown
    )
    nulls = "; ".join(dict.fromkeys(null_text(c) for c in shown if c.reproduces or c.against))
    how = row.how if row.how == "tested in another form" else ""
    verdict = ", ".join(
        filter(None, (row.verdict, "in direction alone" if row.in_direction_alone else "", how))
    )
    return says, found or ABSENT, nulls or ABSENT, verdict, _untested(row)


def _costs(claim: ClaimResult) -> str:
    return f", {told}" if (told := costs_text(claim)) else ""


def _untested(row: HeadlineResult) -> str:
    headline = row.headline
    if headline.untestable:
        settled = SETTLES[headline.settled_by] if headline.settled_by else ""
        return "; ".join(filter(None, (headline.untestable, settled, headline.test)))
    if headline.untested:
        return f"wants {headline.untested}"
    if headline.form:
        return f"tested as: {headline.form}"
    return (
        ""
        if row.tested
        else "; ".join(dict.fromkeys(c.reason or "" for c in row.results if c.reproduces or c.against))
    )
