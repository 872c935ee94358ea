"""What the hardest question costs."""

from __future__ import annotations

from paceline.base.families.family import ComputedMetric, Metric

METRIC = ComputedMetric(
    metric=Metric(
        name="toy_worst_tokens",
        unit="token",
        better="lower",
        doc="Guesses for the question that took most.",
        contract={"formula": "largest sample of toy_tokens"},
        statistic="max",
    ),
    needs=("toy_tokens",),
    compute=lambda observed: [max(observed.samples["toy_tokens"])],
    operations=("toy",),
)
