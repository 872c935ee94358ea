"""What the control plane knows about ``custom``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter, Params
from paceline.base.families.operation import Operation
from paceline.base.techniques.technique import NAME_RULE, valid_name
from paceline.families.kernels.core.planning.metrics import METRICS
from paceline.families.kernels.core.planning.parameters import COMMON
from paceline.families.kernels.core.planning.promises import Compilation, KernelRequirements

ESTIMATE_S = 1e-2
"""Of a call: nobody knows what a file computes."""


def _wrong(text: str) -> str | None:
    return None if valid_name(text.replace("_", "-")) else f"a module of the job: {NAME_RULE}"


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="reference",
        kind="text",
        doc="Module of the technique whose file defines the operation; `paceline kernel` writes it.",
        required=True,
        form=_wrong,
    ),
    Parameter(
        name="workload",
        kind="count",
        doc="Which of the reference's sets of inputs; KernelBench's layout has one, number 0.",
        default=0,
        minimum=0,
    ),
)


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    return []


OPERATION = Operation(
    name="custom",
    place=13,
    summary="What a reference of somebody's computes, in KernelBench's or flashinfer-bench's layout.",
    interface="api.custom:ModuleKernel",
    parameters=(*COMMON, *PARAMETERS),
    metrics=METRICS,
    properties=Compilation,
    requirements=KernelRequirements,
    check=check,
    estimate_s=lambda params: ESTIMATE_S,
    isolated=True,
    renews=True,
)
