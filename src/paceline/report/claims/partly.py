"""What part of a claim held: "partly" alone covers everything between almost nothing and almost all."""

from __future__ import annotations

import math
from collections.abc import Mapping

from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.claims.verdicts import beyond_no_effect
from paceline.base.counting import number_of

LEAST_SHARE = 0.1
"""Below so much of what was asked only the direction held."""


def part_text(claim: ClaimResult) -> str:
    """Say what part of a claim held: ``5 of 8 points``, ``38 % of the gain``, ``direction only``; else nothing.

    Of one whose bound is met at all points it says by which rule that is not the paper's number.
    """
    if claim.verdict != "partly":
        return ""
    if is_met(claim):
        beyond = claim.worst is not None and beyond_no_effect(claim.expect, claim.worst)
        return "no gain, within the slack" if beyond else "our bound met, looser than the paper's number"
    held = [_holds(claim.expect, estimate.value) for _, estimate in claim.points]
    if len(held) > 1 and any(held):
        return f"{sum(held)} of {number_of(len(held), 'point')}"
    share = gain_share(claim)
    if share is None:
        return "direction only"
    return f"{share:.0%}".replace("%", " %") + " of the gain" if share >= LEAST_SHARE else "direction only"


def is_met(claim: ClaimResult) -> bool:
    """Tell whether what a claim expects was found at all of its points, each with its whole interval."""
    return bool(claim.points) and all(
        _holds(claim.expect, end)
        for _, estimate in claim.points
        for end in (estimate.low, estimate.value, estimate.high)
        if end is not None
    )


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
