"""A Markdown summary for a pull request: what changed in a few lines, the tables folded below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from paceline.analysis.points import Point
from paceline.analysis.runs import RunComparison
from paceline.base.counting import number_of
from paceline.report.summaries.decided import Summary, effect_sentence, largest, open_sentence
from paceline.report.tables.results import Table, format_param, varying_params
from paceline.report.words.estimates import format_effect, verdict_text

MOST_CHARACTERS = 60_000
"""GitHub refuses comments above 65,536 characters."""
MOST_LISTED = 10
WORDS = {"faster": "better", "slower": "worse"}


def summary_text(summary: Summary, tables: Sequence[Table], heads: Sequence[str]) -> str:
    """Return what the comparisons of techniques have decided.

    Args:
        summary: Of the points.
        tables: Of the same points.
        heads: Where the numbers are from.
    """
    counts = Counter(WORDS.get(c.verdict.name, c.verdict.name) for c in summary.decided)
    said = (
        f"**{counts['better']} better, {counts['worse']} worse, {counts['equivalent']} equivalent**, "
        f"{len(summary.undecided)} open, of {number_of(summary.num, 'comparison')} with the baseline."
    )
    lines = [said, *_listed([effect_sentence(summary, c) for c in largest(summary)])]
    if summary.undecided:
        lines += ["", "Not told apart:", *_listed([open_sentence(summary, c) for c in summary.undecided])]
    return _document(lines, tables, heads)


def change_text(
    comparisons: Sequence[RunComparison],
    points: Sequence[Point],
    tables: Sequence[Table],
    heads: Sequence[str],
    reason: str | None,
) -> str:
    """Return how a run differs from an earlier one.

    Args:
        comparisons: Series of both.
        points: Of the newer run, for the techniques that gave no number.
        tables: Of the same runs.
        heads: Where the numbers are from.
        reason: Why the runs should not have been compared, or None.
    """
    counts = Counter(WORDS.get(c.verdict.name, c.verdict.name) for c in comparisons)
    said = (
        f"**{counts['worse']} worse, {counts['better']} better, {counts['equivalent']} equivalent**, "
        f"{counts['inconclusive']} open, of {len(comparisons)} series of both runs."
    )
    lines = [f"**FORCED, NOT COMPARABLE ({_text(reason)})**", ""] if reason else []
    lines.append(said)
    keys = varying_params(points)
    for name in ("slower", "faster"):
        lines += _listed([_change(c, keys) for c in comparisons if c.verdict.name == name])
    lost = sorted(
        {f"{label}: {m.status}: {m.reason}" for p in points for label, ms in p.failures.items() for m in ms}
    )
    if lost:
        lines += ["", "Without a number:", *_listed(lost)]
    lines += ["", "The runs were not interleaved: drift between them is not in the intervals."]
    return _document(lines, tables, heads)


def _change(c: RunComparison, keys: Sequence[str]) -> str:
    where = ", ".join(f"{k} {format_param(k, c.params.get(k))}" for k in keys)
    effect = format_effect(c.effect, c.kind, c.bounds, verdict=c.verdict.name)
    place = f"{c.suite}{f', {where}' if where else ''}"
    return f"{c.label}, {c.metric} ({place}): {effect}: {verdict_text(c)}."


def _listed(sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - MOST_LISTED
    lines = [f"- {_text(s)}" for s in sentences[:MOST_LISTED]]
    return [*([""] if lines else []), *lines, *([f"- … and {more} more, below"] if more > 0 else [])]


def _document(lines: Sequence[str], tables: Sequence[Table], heads: Sequence[str]) -> str:
    """Put the text together; tables that do not fit into a comment are named instead."""
    text = "\n".join(["### Paceline", "", *lines, ""])
    foot = "\n".join(["", *(f"<sub>{_text(head)}</sub>  " for head in heads), ""])
    left_out = []
    for table in tables:
        folded = (
            f"\n<details><summary>{_text(table.title)}</summary>\n\n{table.render('markdown')}\n</details>\n"
        )
        if len(text) + len(folded) + len(foot) > MOST_CHARACTERS:
            left_out.append(table.title)
        else:
            text += folded
    if left_out:
        text += (
            f"\nTables that do not fit into a comment: {_text(', '.join(left_out))} (`paceline compare`).\n"
        )
    return text + foot


def _text(text: str) -> str:
    """Return a text that Markdown prints as it is."""
    plain = escape(" ".join(text.split()), quote=False)
    for char in "\\`*_[]~|":
        plain = plain.replace(char, f"\\{char}")
    return plain
