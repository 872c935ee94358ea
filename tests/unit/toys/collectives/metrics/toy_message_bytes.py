"""How long a message is on average."""

from __future__ import annotations

from paceline.base.families.family import ComputedMetric, Metric

METRIC = ComputedMetric(
    metric=Metric(
        name="toy_message_bytes",
        unit="B",
        better="higher",
        doc="Payload bytes of a message of the busiest rank, on average.",
        contract={"formula": "wire_bytes / messages"},
    ),
    needs=("wire_bytes", "messages"),
    compute=lambda observed: [
        sent / count
        for sent, count in zip(observed.samples["wire_bytes"], observed.samples["messages"], strict=True)
    ],
    operations=("toy",),
)
