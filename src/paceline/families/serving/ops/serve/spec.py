"""What the control plane knows about ``serve``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.serving.core.model_sizes import REAL_SIZES
from paceline.families.serving.core.planning.points import check_sizes, check_trace
from paceline.families.serving.core.planning.promises import EngineRequirements
from paceline.families.serving.core.workloads.drawn import AT_ONCE, CLOSED, SHARED, count_of
from paceline.families.serving.ops.serve.metrics import METRICS
from paceline.families.serving.ops.serve.parameters import PARAMETERS

TOKENS_PER_S = 1500.0
"""Of the tiny model on two slow cores, for estimates alone."""
ENGINE_START_S = 6.0


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    return check_trace(params) + check_sizes(params)


def estimate_s(params: Params) -> float | None:
    """Return rough seconds of a technique in a launch; None for models whose pace nobody knows here."""
    if params["model"] in REAL_SIZES:
        return None
    requests = count_of(params, "requests")
    tokens = requests * (count_of(params, "prompt_tokens") / 8 + count_of(params, "output_tokens"))
    if params["workload"] == SHARED:
        tokens += requests * count_of(params, "prefix_tokens") / 8
    busy_s = tokens / TOKENS_PER_S
    open_loop = params["arrivals"] not in (CLOSED, AT_ONCE)
    arriving_s = requests / float(str(params["rate_per_s"])) if open_loop else 0.0
    return ENGINE_START_S + max(busy_s, arriving_s)


OPERATION = Operation(
    name="serve",
    summary="Calls go to the reference engine over HTTP, and the technique schedules it.",
    interface="api.scheduling:Scheduler",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=EngineRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
