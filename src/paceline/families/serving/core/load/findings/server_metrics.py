"""What a server says of itself at ``/metrics`` (Prometheus' text format), and how it changed over a run."""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Mapping

from paceline.families.serving.core.load.sending.direct import open_directly

MOST_KEPT = 80
"""Series of which a record keeps the change."""
MAX_BYTES = 4_000_000
TIMEOUT_S = 5.0
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^\n]*\})?\s+(\S+)(?:\s+\d+)?\s*")
_CHANGING = ("_total", "_sum", "_count")
"""How the names of what only grows end."""


def read_metrics(address: str, tls: ssl.SSLContext | None = None) -> dict[str, float] | None:
    """Return a server's counters, summed over their labels; None where it tells none.

    Args:
        address: Of ``/metrics``.
        tls: What the connection is secured by.
    """
    try:
        with open_directly(address, timeout_s=TIMEOUT_S, tls=tls) as answer:
            text = answer.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return parsed(text) or None


def parsed(text: str) -> dict[str, float]:
    """Read Prometheus' text: counters, and sums and counts of histograms; whatever else stands there is left out."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or not match[1].endswith(_CHANGING):
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            found[match[1]] = found.get(match[1], 0.0) + value
    return found


def changes(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> dict[str, float]:
    """Return what grew during a run: counters as they are, of histograms the mean as ``NAME_mean``."""
    if before is None or after is None:
        return {}
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    grown = {name: value for name, value in grown.items() if value > 0}
    told: dict[str, float] = {}
    for name, value in sorted(grown.items()):
        base = name.removesuffix("_sum")
        if base != name and grown.get(f"{base}_count"):
            told[f"{base}_mean"] = value / grown[f"{base}_count"]
        elif not (name.endswith("_count") and f"{name.removesuffix('_count')}_sum" in grown):
            told[name] = value
    return dict(list(told.items())[:MOST_KEPT])
