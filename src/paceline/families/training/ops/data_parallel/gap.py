"""What share of the worth of exchanging a technique keeps: its loss, between that of no exchange and the baseline's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.families.training.core.loop.strategy import Results
from paceline.worker.ranks.session import Block, CaseError

NAME = "gap_closed"
ALONE = "no-communication"
"""The technique whose ranks send nothing."""
LEAST_GAP = 0.02
"""Of the baseline's loss, or of what it has above a known entropy rate a tenth: below it the gap is noise."""
LEAST_EXCESS_GAP = 0.1


def add_gap_closed(block: Block, results: Results) -> None:
    """Give every technique the share of the gap that it closes, where a block has both ends of it.

    The share is (a − l) / (a − b) of last held-out losses: a of ranks that send nothing, b of the block's baseline, l
    the technique's own, all from the same weights and batches. It is 1 for the baseline, 0 for ranks alone, negative
    for what is worse than those, and above 1 for what learns more than the baseline.
    """
    ends = {case.label: case for case, _ in results}
    alone = next((label for label, case in ends.items() if case.technique == ALONE), None)
    if alone is None:
        return
    ok = {case.label: found for case, found in results if not isinstance(found, CaseError)}
    lost = {label: _last(found) for label, found in ok.items()}
    none, whole = lost.get(alone), lost.get(block.baseline)
    if none is None or whole is None:
        _absent(ok, f"there is no loss of {alone} or of {block.baseline} in this launch")
        return
    excess = _last(ok[block.baseline], "excess_loss")
    least = LEAST_GAP * whole if excess is None else LEAST_EXCESS_GAP * excess
    if none - whole < least:
        _absent(
            ok, f"{alone} ends {none - whole:.4g} nats above {block.baseline}; a gap has {least:.4g} at least"
        )
        return
    for label, loss in lost.items():
        if loss is not None:
            ok[label]["metrics"][NAME] = {"samples": [(none - loss) / (none - whole)]}


def _last(found: Mapping[str, Any], metric: str = "eval_loss") -> float | None:
    samples = found["metrics"].get(metric, {}).get("samples")
    return float(samples[-1]) if samples else None


def _absent(ok: Mapping[str, dict[str, Any]], reason: str) -> None:
    for found in ok.values():
        found["absent"][NAME] = reason
