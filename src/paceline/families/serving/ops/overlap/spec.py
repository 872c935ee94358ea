"""What the control plane knows about ``overlap``, free of torch."""

from __future__ import annotations

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.requirements import DeviceRequirements
from paceline.families.serving.core.workloads.drawn import count_of
from paceline.families.serving.ops.overlap.metrics import METRICS
from paceline.families.serving.ops.overlap.operators import SERVED
from paceline.families.serving.ops.overlap.parameters import PARAMETERS

MOST_ROWS = 8192
"""That are computed on a small model, too."""


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    wrong: list[str] = []
    tp_size, served = count_of(params, "tp_size"), SERVED[str(params["served"])]
    if served.kv_heads % tp_size:
        wrong.append(f"{served.kv_heads} heads of keys cannot be dealt out to {number_of(tp_size, 'device')}")
    if float(str(params["exchange"])) > 1.0:
        wrong.append("exchange is a share of a rate: 1 at most")
    if count_of(params, "batch_rows") > MOST_ROWS:
        wrong.append(f"a batch has {MOST_ROWS} rows at most")
    return wrong


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return 3.0


OPERATION = Operation(
    name="overlap",
    place=5,
    summary="The technique orders a batch's operators on one device, in virtual time from datasheets' rates.",
    interface="api.overlapping:Ordering",
    parameters=PARAMETERS,
    metrics=METRICS,
    requirements=DeviceRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
