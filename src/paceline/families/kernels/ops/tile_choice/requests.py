"""In a technique's process: a predictor learns from known times and predicts unknown ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from paceline.families.kernels.api.problem import Problem

if TYPE_CHECKING:
    from paceline.families.kernels.core.timing_process.server import TimedTechnique

_perf_ns = time.perf_counter_ns


def answer(served: TimedTechnique, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return predicted seconds for each unknown product, and the seconds that learning and predicting took.

    Args:
        served: The technique in this process.
        message: ``params`` of the case; ``known`` products by their features with their ``times``; ``unknown`` ones.
    """
    problem = Problem(
        operation="tile_choice", dtype=torch.float32, device=served.device, params=message["params"]
    )
    start = _perf_ns()
    with served.guard.watch():
        predictor = served.factory(problem, **served.config["options"])
        predictor.fit(np.array(message["known"]), np.array(message["times"]))
        predicted = [float(p) for p in predictor.predict(np.array(message["unknown"]))]
    return {"predicted": predicted, "elapsed_s": (_perf_ns() - start) * 1e-9}
