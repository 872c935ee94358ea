"""How results of collectives lie on pages."""

from __future__ import annotations

from paceline.report.layout import ChoiceSpec, FrontierSpec, Layout, SplitSpec

LAYOUT = Layout(
    frontiers=(
        FrontierSpec(across="wire_bytes", up="relative_l2_error"),
        FrontierSpec(across="latency", up="relative_l2_error"),
    ),
    quality={"relative_l2_error": 1e-3, "survived": 0.01, "state_parity": 0.01, "named": 0.01},
    exact=("relative_l2_error",),
    choice=ChoiceSpec(columns="size_bytes", rows=("link", "ranks")),
    question="Which all-reduce on a slow link, at which size?",
    splits=(
        SplitSpec(
            title="one call",
            parts=("communicate_s", "compress_s", "decompress_s", "pack_s", "unpack_s"),
            whole="latency",
            apart="parts are those of other calls, one right behind the other, without the pauses between timed ones",
        ),
    ),
)
