"""What the control plane knows about ``predict``, free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.serving.core.model_sizes import REAL_SIZES
from paceline.families.serving.core.planning.points import (
    check_arrivals_in_virtual_time,
    check_sizes,
    check_trace,
    longest_context,
)
from paceline.families.serving.core.planning.promises import EngineRequirements
from paceline.families.serving.core.workloads.drawn import SESSIONS, WORKFLOWS, count_of
from paceline.families.serving.core.workloads.traced_calls import ALL_TURNS, TRACED, speaks
from paceline.families.serving.ops.predict.metrics import METRICS
from paceline.families.serving.ops.predict.parameters import PARAMETERS
from paceline.families.serving.ops.predict.plans import PLANS


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong = check_trace(params)
    in_turn = params["workload"] == TRACED and speaks(params) and params["trace_turns"] == ALL_TURNS
    if params["workload"] in (SESSIONS, WORKFLOWS) or in_turn:
        wrong.append(
            "what is predicted is there at the start, and no call waits for another: take independent calls"
        )
    wrong += check_arrivals_in_virtual_time(params)
    if count_of(params, "plans") > len(PLANS):
        wrong.append(f"there are {len(PLANS)} plans")
    if params["workload"] != TRACED:
        least_share = min(share for _, _, share in PLANS)
        room = count_of(params, "block_size") * count_of(params, "num_blocks") * least_share
        if longest_context(params) > room:
            wrong.append(
                f"the smallest plan's cache has room for {number_of(room, 'token', form='.0f')}, fewer than a "
                "call can have"
            )
    return wrong + check_sizes(params)


def estimate_s(params: Params) -> float | None:
    """Return rough seconds of a technique in a launch; None for models whose pace nobody knows here."""
    if params["model"] in REAL_SIZES:
        return None
    return 4.0


OPERATION = Operation(
    name="predict",
    place=2,
    summary="The technique says what configurations of the engine would take, which then are executed.",
    interface="api.predicting:Predictor",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=EngineRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
