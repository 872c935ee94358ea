"""What conformance points of several operations share; see ``paceline.workflows.conformance``."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.base.families.family import Scalar

RANKS = (1, 2)
"""Of operations whose ranks share a model; the others have none."""
PROTOCOL: Mapping[str, Scalar] = {"timeout": "300s"}
"""An engine's start, all calls and a plain forward computation of every answer are one technique's time."""
CALLS: Mapping[str, Scalar] = {
    "requests": 12,
    "model": "tiny",
    "workload": "shared-prefixes",
    "prefixes": 3,
    "prefix_tokens": 40,
    "prompt_tokens": 21,
    "output_tokens": 9,
    "num_blocks": 64,
    "max_batch": 5,
    "token_budget": 48,
}
"""Calls that begin alike, more of them than have a place, in blocks and steps that their lengths do not fill."""


def first(points: tuple[Mapping[str, Scalar], ...], *, brief: bool) -> list[dict[str, Scalar]]:
    """Return an operation's points, the first alone where ``brief``."""
    return [dict(point) for point in (points[:1] if brief else points)]
