"""The training family, put together from its operations; free of torch."""

from __future__ import annotations

from paceline.base.families.operation import computed_metrics_in, family_of, operations_in
from paceline.families.training.core.planning.quantities import QUANTITIES

FAMILY = family_of(
    operations_in("paceline.families.training"),
    name="training",
    summary="Training of one language model on several ranks: time, bytes, memory and loss at equal tokens.",
    in_order=(
        ("row_messages", "dispatch_s"),
        ("restore_s", "loss_fall"),
        ("log_bytes", "survived"),
        ("join_s", "time_to_target"),
    ),
    computed=computed_metrics_in("paceline.families.training"),
    quantities=QUANTITIES,
    # every optimizer imports it, which takes as long as importing PyTorch itself
    preload=("torch._dynamo",),
    default_metrics=("time_per_token", "eval_loss", "wire_bytes"),
    tuned_metrics=(
        "eval_loss",
        "excess_loss",
        "gap_closed",
        "train_loss",
        "loss_fall",
        "time_to_target",
        "bytes_to_target",
    ),
)
