"""How far apart a launch's samples of the latency are."""

from __future__ import annotations

from paceline.base.families.family import ComputedMetric, Metric

METRIC = ComputedMetric(
    metric=Metric(
        name="toy_spread",
        unit="ratio",
        better="lower",
        doc="Largest sample of the latency over the least, of one launch.",
        contract={"formula": "max / min of the launch's samples of latency"},
        statistic="mean",
    ),
    needs=("latency",),
    compute=lambda observed: [max(observed.samples["latency"]) / min(observed.samples["latency"])],
    operations=("toy",),
)
