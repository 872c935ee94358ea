"""What part of a claim held: "partly" alone covers everything between almost nothing and almost all."""

from __future__ import annotations

import math
from collections.abc import Mapping

from paceline.analysis.claims import ClaimResult
from paceline.base.counting import number_of

LEAST_SHARE = 0.1
"""Below so much of what was asked only the direction held."""


def part_text(claim: ClaimResult) -> str:
    """Say what part of a claim held: ``5 of 8 points``, ``38 % of the gain``, ``direction only``; else nothing."""
    if claim.verdict != "partly":
        return ""
    held = [_holds(claim.expect, estimate.value) for _, estimate in claim.points]
    if len(held) > 1 and any(held):
        return f"{sum(held)} of {number_of(len(held), 'point')}"
    share = gain_share(claim)
    if share is None:
        return "direction only"
    return f"{share:.0%}".replace("%", " %") + " of the gain" if share >= LEAST_SHARE else "direction only"


def gain_share(claim: ClaimResult) -> float | None:
    """Return what share of the gain that a claim asks for was found where it was decided; None of other claims."""
    bound = claim.expect.get("ratio_at_most", claim.expect.get("ratio_at_least"))
    if bound is None or claim.worst is None or min(bound, claim.worst.value) <= 0 or bound == 1:
        return None
    found = claim.worst.value
    if not math.isfinite(found):
        return None
    return (found - 1) / (bound - 1) if "ratio_at_most" not in claim.expect else (1 - found) / (1 - bound)


def verdict_with_part(claim: ClaimResult) -> str:
    """Write a claim's verdict; of "partly" what part."""
    part = part_text(claim)
    return f"{claim.verdict} ({part})" if part else claim.verdict


def _holds(expect: Mapping[str, float], value: float) -> bool:
    """Tell whether a value is on the side that was asked."""
    for name, bound in expect.items():
        if name.endswith("_at_most") and value > bound:
            return False
        if name.endswith("_at_least") and value < bound:
            return False
    return bool(expect)
