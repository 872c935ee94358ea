"""What the control plane knows about ``endpoint``, free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.serving.core.planning.points import check_trace, wrong_places
from paceline.families.serving.core.workloads.drawn import AT_ONCE, CLOSED, calls_together, count_of
from paceline.families.serving.ops.endpoint.metrics import METRICS
from paceline.families.serving.ops.endpoint.parameters import PARAMETERS

START_S = 2.0
TOKENS_PER_S = 40.0
"""Of one call at a server that nobody knows, for estimates alone."""
PROBES = 15
"""Of a search, for estimates alone."""


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong = check_trace(params)
    if count_of(params, "requests") < calls_together(params):
        wrong.append(
            f"{params['workload']} have {number_of(calls_together(params), 'call')} each, more than there are requests"
        )
    wrong += [f"{name}: {what}: give {expected}" for name, what, expected in wrong_places(params)]
    if params["until_saturated"] and params["arrivals"] in (CLOSED, AT_ONCE):
        wrong.append(
            f"a search tries rates, and arrivals: {params['arrivals']} have none: take poisson or constant"
        )
    if not 0 < float(str(params["slo_share"])) <= 1:
        wrong.append(f"slo_share {params['slo_share']} is no share: give one above 0 and at most 1")
    return wrong


def estimate_s(params: Params) -> float | None:
    """Return rough seconds of a target in a launch."""
    requests, answer_s = count_of(params, "requests"), count_of(params, "output_tokens") / TOKENS_PER_S
    if params["arrivals"] == CLOSED:
        # a place is held while the user thinks
        together = calls_together(params)
        thinking_s = float(str(params["think_s"])) * (together - 1) / together
        sending_s = (answer_s + thinking_s) * requests / count_of(params, "concurrency")
    elif params["arrivals"] == AT_ONCE:
        sending_s = answer_s
    else:
        sending_s = requests / float(str(params["rate_per_s"]))
    return START_S + (PROBES if params["until_saturated"] else 1) * (sending_s + answer_s)


OPERATION = Operation(
    name="endpoint",
    place=8,
    summary="Calls go to servers that somebody else runs, at their addresses.",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
    needs_torch=False,
    elsewhere=lambda params: True,
)
