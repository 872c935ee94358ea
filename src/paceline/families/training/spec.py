"""The training family, put together from its operations, and what reports draw of it; free of torch."""

from __future__ import annotations

from paceline.base.family import CurveSpec, FrontierSpec, SplitSpec
from paceline.base.operation import computed_metrics_in, family_of, operations_in

CURVE_AXES = (("tokens", "token"), ("seconds", "s"), ("bytes", "B"))
COSTS = ("wire_bytes", "kernel_bytes_total", "time_per_token")
"""What a loss is traded against."""

FAMILY = family_of(
    operations_in("paceline.families.training"),
    name="training",
    summary="Training of one language model on several ranks: time, bytes, memory and loss at equal tokens.",
    asked="What ranks share",
    in_order=(
        ("row_messages", "dispatch_s"),
        ("restore_s", "loss_fall"),
        ("log_bytes", "survived"),
        ("join_s", "time_to_target"),
    ),
    computed=computed_metrics_in("paceline.families.training"),
    default_metrics=("time_per_token", "eval_loss", "wire_bytes"),
    curves=(
        CurveSpec(quantity="excess_loss", unit="nat", over=CURVE_AXES),
        CurveSpec(quantity="eval_loss", unit="nat", over=CURVE_AXES),
    ),
    swept=("time_to_target",),
    tuned_metrics=(
        "eval_loss",
        "excess_loss",
        "train_loss",
        "loss_fall",
        "time_to_target",
        "bytes_to_target",
    ),
    scaled=("time_per_token",),
    frontiers=(
        *(FrontierSpec(across=cost, up="excess_loss") for cost in COSTS),
        *(FrontierSpec(across=cost, up="eval_loss", unless="excess_loss") for cost in COSTS),
    ),
    splits=(
        SplitSpec(title="one step", parts=("compute_s", "gradients_s", "update_s", "parameters_s")),
        SplitSpec(
            title="a rank's memory",
            parts=("parameter_bytes", "gradient_bytes", "optimizer_bytes", "extra_bytes", "scratch_bytes"),
        ),
    ),
)
