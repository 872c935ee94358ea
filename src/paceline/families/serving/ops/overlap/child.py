"""The process in which a technique of ``overlap`` orders operators."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from paceline.families.serving.api.overlapping import Given, NanoBatch, Operator, Ordering
from paceline.families.serving.core.child import Make, made, main
from paceline.families.serving.core.engine.core import RefusedStepError
from paceline.worker.fences.guard import Guard


def play(make: Make, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let it order the batch."""
    technique: Ordering = made(make, guard)
    told = dict(asked["given"])
    operators = tuple(Operator(**{**o, "after": tuple(o["after"])}) for o in told.pop("operators"))
    given = Given(operators=operators, **told)
    with guard.watch():
        found: list[Any] = list(technique.order(given))
    strange = next((b for b in found if not isinstance(b, NanoBatch)), None)
    if strange is not None:
        raise RefusedStepError(f"the order has a {type(strange).__name__} instead of a NanoBatch")
    guard.check()
    return {"batches": [asdict(b) for b in found]}


if __name__ == "__main__":
    sys.exit(main(play))
