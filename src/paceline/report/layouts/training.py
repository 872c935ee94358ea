"""How results of training lie on pages."""

from __future__ import annotations

from paceline.report.layout import CurveSpec, FrontierSpec, Layout, SplitSpec

CURVE_AXES = (("tokens", "token"), ("seconds", "s"), ("bytes", "B"))
COSTS = ("wire_bytes", "kernel_bytes_total", "time_per_token")
"""What a loss is traded against."""

LAYOUT = Layout(
    curves=(
        CurveSpec(quantity="excess_loss", unit="nat", over=CURVE_AXES),
        CurveSpec(quantity="eval_loss", unit="nat", over=CURVE_AXES),
    ),
    swept=("time_to_target",),
    scaled=("time_per_token",),
    frontiers=(
        FrontierSpec(across="wire_bytes", up="gap_closed"),
        *(FrontierSpec(across=cost, up="excess_loss") for cost in COSTS),
        *(FrontierSpec(across=cost, up="eval_loss", unless="excess_loss") for cost in COSTS),
    ),
    quality={"excess_loss": 0.01, "eval_loss": 0.01, "survived": 0.01, "state_parity": 0.01},
    question="Which way to train over slow links without losing accuracy?",
    splits=(
        SplitSpec(title="one step", parts=("compute_s", "gradients_s", "update_s", "parameters_s")),
        SplitSpec(
            title="a rank's memory",
            parts=("parameter_bytes", "gradient_bytes", "optimizer_bytes", "extra_bytes", "scratch_bytes"),
        ),
    ),
)
