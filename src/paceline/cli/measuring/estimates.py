"""What a plan will take, in words: a range with what it rests on, and the most that its time-outs allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.base.counting import number_of
from paceline.base.units import format_duration
from paceline.spec.plans.plan import Plan


def estimate_text(plan: Plan, estimate: Mapping[str, Any], *, wide: bool = False) -> str:
    """Say how long a plan takes and on what that rests; ``wide`` adds what its time-outs allow, which is far more."""
    most = f"at most {format_duration(estimate['most_s'])} by its time-outs"
    if not plan.blocks:
        return "nothing to run"
    if estimate["likely_s"] is None:
        return f"{time_text(plan, estimate)}{f'; {most}' if wide else ''}"
    text = f"{time_text(plan, estimate)}{f', {most}' if wide else ''}"
    if estimate["num_over_limit"]:
        text += (
            f"\n  by the formula {estimate['num_over_limit']} of {number_of(len(plan.blocks), 'point')} need "
            "longer here than their "
            "time-out, and would fail"
        )
    return text


def time_text(plan: Plan, estimate: Mapping[str, Any]) -> str:
    """Say how long a plan takes and on what that rests, or why nothing can be said."""
    if estimate["likely_s"] is None:
        return f"no estimate yet: {_why_none(plan, estimate)}"
    low, likely, high = (format_duration(estimate[key]) for key in ("low_s", "likely_s", "high_s"))
    span = "" if low == likely == high else f"{low} to {high}, "
    return f"about {likely} ({span}{basis_text(plan, estimate)})"


def basis_text(plan: Plan, estimate: Mapping[str, Any]) -> str:
    """Say on what an estimate rests."""
    number = estimate["num_runs"]
    runs = f"from {number_of(number, 'earlier run')} on such a host"
    if estimate["basis"] == "earlier runs":
        return runs
    if estimate["basis"] == "earlier runs and formula":
        return f"{runs} for {estimate['num_blocks_known']} of {number_of(len(plan.blocks), 'point')}"
    return "by a formula: no earlier run of it on such a host"


def _why_none(plan: Plan, estimate: Mapping[str, Any]) -> str:
    number, device = estimate["num_blocks_known"], plan.data["runner"]["device"]
    if number:
        return (
            f"{len(plan.blocks) - number} of {number_of(len(plan.blocks), 'point')} have no earlier run of their "
            "suite here"
        )
    if device != "cpu":
        return (
            f"nothing of it has run on this {device} device, and the formula was made for two processor cores"
        )
    return "nothing of it has run here, and the formula knows the speed of no such model"
