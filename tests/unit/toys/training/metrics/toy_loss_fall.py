"""How far the training loss falls."""

from __future__ import annotations

from paceline.base.families.family import ANY, ComputedMetric, Metric

METRIC = ComputedMetric(
    metric=Metric(
        name="toy_loss_fall",
        unit="nat",
        bounds=ANY,
        better="higher",
        doc="Training loss of the first window minus that of the last.",
        contract={"formula": "first sample of train_loss - last sample"},
        statistic="last",
        compared_by="difference",
    ),
    needs=("train_loss",),
    compute=lambda observed: [observed.samples["train_loss"][0] - observed.samples["train_loss"][-1]],
    operations=("toy",),
)
