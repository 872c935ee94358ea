"""Parameters and metrics of the calibration family: comparisons whose truth is known."""

from __future__ import annotations

from paceline.base.families.family import Family, Metric, Parameter, Params


def _check(params: Params) -> list[str]:
    return []


def _estimate_s(params: Params) -> float:
    return 2e-5


FAMILY = Family(
    name="calibration",
    summary="Work of known duration on the fake device, to measure the harness's own error rates.",
    parameters=(
        Parameter(
            name="op",
            kind="choice",
            doc="The operation.",
            default="work",
            choices=("work",),
            required=True,
        ),
        Parameter(name="trial", kind="count", doc="Number of the trial.", default=0, minimum=0),
        Parameter(name="work_s", kind="duration", doc="Duration of one call without noise.", default=0.001),
        Parameter(name="ranks", kind="count", doc="Number of ranks.", default=1, minimum=1),
    ),
    metrics=(
        Metric(
            name="latency",
            unit="s",
            better="lower",
            doc="Time of one call.",
            contract={"timer": "virtual clock of the fake device"},
            margin=0.0,
        ),
    ),
    default_metrics=("latency",),
    operation_key="op",
    check=_check,
    estimate_s=_estimate_s,
    internal=True,
)
