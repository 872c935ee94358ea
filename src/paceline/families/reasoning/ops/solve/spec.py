"""What the control plane knows about ``solve``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.reasoning.core.planning.naming import is_embedded
from paceline.families.reasoning.core.planning.points import check_questions
from paceline.families.reasoning.ops.solve.metrics import METRICS
from paceline.families.reasoning.ops.solve.parameters import PARAMETERS

TOKENS_PER_S = 3000.0
"""Decoded tokens a second of the embedded reasoner on two slow cores, for estimates alone."""
TRACE_TOKENS = 90


def estimate_s(params: Params) -> float | None:
    """Return rough seconds of a technique in a launch; None for models whose pace nobody knows here."""
    if not is_embedded(str(params["model"])):
        return None  # how fast somebody's own model answers, and how long it thinks, shows when it does
    tokens = int(str(params["questions"])) * int(str(params["samples"])) * TRACE_TOKENS
    return 1.5 * tokens / TOKENS_PER_S


OPERATION = Operation(
    name="solve",
    summary="Questions are answered by traces of one model, of which a technique may draw several.",
    interface="api.requests:Method",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check_questions,
    estimate_s=estimate_s,
    elsewhere=lambda params: str(params.get("model", "")).startswith("openai:"),
)
