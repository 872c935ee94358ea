"""The process in which a technique of ``predict`` predicts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from paceline.families.serving.api.predicting import Asked, Configuration, Predicted, Predictor
from paceline.families.serving.core.child import Make, made, main
from paceline.families.serving.core.engine.core import RefusedStepError
from paceline.families.serving.core.simulation.costs import Costs
from paceline.worker.fences.guard import Guard


def play(make: Make, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let it predict all configurations."""
    technique: Predictor = made(make, guard)
    trace = tuple(Asked(prompt_tokens=p, output_tokens=o) for p, o in asked["trace"])
    table = Costs.of(asked["costs"])
    found: list[dict[str, Any]] = []
    for configuration in asked["configurations"]:
        with guard.watch():
            predicted = technique.predict(trace, Configuration(**configuration), table)
        if not isinstance(predicted, Predicted):
            raise RefusedStepError(
                f"the predictor returned {type(predicted).__name__} instead of a Predicted"
            )
        found.append(asdict(predicted))
    guard.check()
    return {"predicted": found}


if __name__ == "__main__":
    sys.exit(main(play))
