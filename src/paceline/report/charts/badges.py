"""Badges: small SVG files that say how the comparisons of a board ended, or what became of a paper's claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import escape

from paceline.analysis.compare import Comparison
from paceline.report.tables.results import format_counts, primary_metric
from paceline.report.words.estimates import verdict_text

HEIGHT, LETTER, PAD = 20, 6.4, 8
"""Height, mean width of a letter at 11 pixels, and room at both ends, in pixels."""
COLOURS = {"good": "#1f6f4a", "bad": "#a12a1b", "even": "#1d5aa6", "quiet": "#565f6b"}
"""Grounds on which white letters have a contrast of 4.5:1 and more."""
MAX_LETTERS = 80


def badge(left: str, right: str, kind: str) -> str:
    """Return a badge of two texts; ``kind`` is one of ``COLOURS``."""
    texts = [t if len(t) <= MAX_LETTERS else f"{t[: MAX_LETTERS - 1]}…" for t in (left, right)]
    lengths = [round(len(t) * LETTER) for t in texts]
    widths = [length + 2 * PAD for length in lengths]
    whole, title = sum(widths), escape(": ".join(texts))
    right_side = f"M{widths[0]} 0h{widths[1] - 3}q3 0 3 3v{HEIGHT - 6}q0 3-3 3h-{widths[1] - 3}z"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f'<rect width="{whole}" height="{HEIGHT}" rx="3" fill="#2b3138"/>',
        f'<path d="{right_side}" fill="{COLOURS[kind]}"/>',
        '<g fill="#fff" font-family="system-ui,sans-serif" font-size="11">',
    ]
    for text, length, begin in zip(texts, lengths, (0, widths[0]), strict=True):
        parts.append(f'<text x="{begin + PAD}" y="14" textLength="{length}">{escape(text)}</text>')
    return "".join([*parts, "</g></svg>\n"])


def board_badge(suite: str, comparisons: Sequence[Comparison]) -> str:
    """Say how the comparisons with the baseline ended, by the metric that ranks."""
    points = [c.point for c in comparisons]
    metric = primary_metric(points) if points else ""
    counts = Counter(verdict_text(c) for c in comparisons if c.metric == metric)
    text = format_counts(sorted(counts.items())) if counts else "nothing compared"
    return badge(suite, f"{metric}: {text}" if counts else text, "even" if counts else "quiet")
