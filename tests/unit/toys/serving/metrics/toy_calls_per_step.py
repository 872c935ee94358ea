"""How many calls share a step."""

from __future__ import annotations

from paceline.base.families.family import ComputedMetric, Metric

METRIC = ComputedMetric(
    metric=Metric(
        name="toy_calls_per_step",
        unit="calls",
        better="higher",
        doc="Calls that share a step, on average.",
        contract={"formula": "requests that were served / toy_steps"},
    ),
    needs=("toy_steps",),
    compute=lambda observed: [observed.accounting["ok"] / observed.samples["toy_steps"][0]],
    operations=("toy",),
)
