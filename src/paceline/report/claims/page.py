"""The page ``docs/claims.md``: papers by their headlines, and every claim that a run measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from paceline.analysis.claims.headlines import LedgerRow, conforming
from paceline.analysis.claims.results import ClaimResult
from paceline.base.counting import number_of
from paceline.report.claims.headlines import HEADLINE_HEADERS, headline_cells, null_text
from paceline.report.claims.premises import (
    WHOSE,
    premises_text,
    remarks_text,
    said_text,
    scale_text,
    settled_text,
)
from paceline.report.claims.text import (
    OWN_BOUND,
    PAPERS_NUMBER,
    STATEMENT,
    decided_by,
    found_at_a_cost,
    matrix_text,
    sides,
)
from paceline.report.words.names import metric_label

HEADERS = (
    *("paper", STATEMENT, "whose number", PAPERS_NUMBER, "measured", "asked", "found, and our scale"),
    *(
        "points of the suite",
        "without the mechanism",
        "verdict",
        "premises",
        "what would settle it",
        "evidence",
    ),
)
QUIET = ("reproduced", "conforms")
"""Verdicts that are not written in bold."""


def claims_page(claims: Sequence[ClaimResult], rows: Sequence[LedgerRow], *, command: str) -> str:
    """Return the page.

    Args:
        claims: All claims; those of which no run has a number are counted alone.
        rows: All papers.
        command: What writes this page.
    """
    measured = [c for c in claims if c.verdict != "not run" or c.worst is not None]
    counts = Counter(row.verdict for row in rows)
    titles = {row.paper.slug: row.paper.title.split(":")[0] for row in rows}
    lines = [
        "# What was measured of what papers say",
        "",
        f"Written by `{command}`. {number_of(len(rows), 'paper')}: "
        + ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
        + ".",
        "",
        *_how_to_read(len(measured), len(claims) - len(measured)),
    ]
    for family in dict.fromkeys(c.suite.split("/")[0] for c in measured):
        lines += ["", f"## {family.capitalize()}"]
        sheets = [row for row in rows if row.paper.family == family and row.headlines]
        if sheets:
            headers = ("paper", *HEADLINE_HEADERS)
            lines += ["", "### Papers, headline by headline", "", _row(headers), _row("---" for _ in headers)]
            lines += _headline_rows(sheets)
        lines += ["", "### Claims of suites", "", _row(HEADERS), _row("---" for _ in HEADERS)]
        lines += _claim_rows([c for c in measured if c.suite.startswith(f"{family}/")], titles)
    return "\n".join(lines) + "\n"


def _how_to_read(measured: int, waiting: int) -> tuple[str, ...]:
    return (
        "A paper is *reproduced* where every headline of its abstract and main table is tested and holds, and *partly "
        "tested* where those that are tested hold and others are not; otherwise it has the worst verdict of its tested "
        "headlines. Its claims that quote it are reproductions. Each is judged again with an arm without the mechanism "
        "in the place of the side that has it: where that does as well, the claim *says nothing*. An interval that "
        "lies wholly on the wrong side of no effect, and a bound of ours in the place of a paper's number, hold "
        "*partly* at most; what follows from something that was assumed is *consistent with a model*. Bytes, closed "
        "forms and bounds of ours *conform* or do not, and make no paper's verdict. Nor does a claim that is held "
        "against another arm than its paper's own opponent, unless it says why that is no easier to beat; beside the "
        "paper's number stands whom the paper beats.",
        "",
        f"Below are the {number_of(measured, 'claim')} that a run measured; {waiting} "
        "more wait for one "
        "(`paceline claims`). A verdict needs the whole 95 % interval on one side. Where a claim is about several "
        "points, the worst is shown; the suite's board on the site has all. Numbers have as many digits as it takes "
        "to see on which side of what was asked they lie.",
        "",
        "A claim expects the paper's own number, a testable form of its statement that is ours, or, as a bound of the "
        "suite, something that no paper says. Its premises are what must "
        "hold in the run for its number to speak: where one of them does not, the claim is *not testable here*, or "
        "*not run* where a machine of two cores could meet it, whatever was found, and the premise says by how much it "
        "fails and what would meet it. Beside what was found "
        "stands its cost: metrics of the suite in which the technique is worse than what it is held against. A claim "
        "is about all points of its suite, or says why it selects some. Either way stands there at how many of all "
        "that were measured it holds, each judged by its own interval.",
        "",
        "Evidence is graded: A is confirmed by another run, B has five launches or more, C has fewer, or code that "
        "was not committed, D was imported. Beside it stands the run, by the beginning of its record's name, and of "
        "several points the one that decided. On the site (`paceline site build`) a verdict leads to that point's "
        "page, with its samples and curves.",
    )


def _headline_rows(rows: Iterable[LedgerRow]) -> Iterator[str]:
    for row in rows:
        told = "; ".join(filter(None, (f"**{row.verdict}**", conforming(row.results))))
        for number, headline in enumerate(row.headlines):
            paper = f"{row.paper.title.split(':')[0]}: {told}" if number == 0 else ""
            yield _row((paper, *headline_cells(headline)))


def _claim_rows(claims: Iterable[ClaimResult], titles: dict[str, str]) -> Iterator[str]:
    for claim in claims:
        paper = titles.get(claim.paper, claim.paper) if claim.paper else OWN_BOUND
        what = f"{metric_label(claim.metric)} of {sides(claim)} ({claim.suite})"
        verdict = claim.verdict if claim.verdict in QUIET else f"**{claim.verdict}**"
        if claim.verdict == "not reproduced" and claim.premise == "met":
            verdict += " (premises met)"
        shown = (claim.grade, claim.host_class, decided_by(claim), remarks_text(claim))
        evidence = "; ".join(text for text in shown if text)
        found = found_at_a_cost(claim, scale_text(claim))
        null = null_text(claim) if claim.reproduces or claim.against else ""
        cells = (
            paper,
            claim.quote,
            WHOSE[claim.whose],
            said_text(claim),
            what,
            claim.expectation,
            found,
            matrix_text(claim),
            null,
        )
        yield _row((*cells, verdict, premises_text(claim), settled_text(claim), evidence))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
