"""How results of collectives lie on pages."""

from __future__ import annotations

from paceline.report.layout import FrontierSpec, Layout, SplitSpec

LAYOUT = Layout(
    frontiers=(
        FrontierSpec(across="wire_bytes", up="relative_l2_error"),
        FrontierSpec(across="latency", up="relative_l2_error"),
    ),
    splits=(
        SplitSpec(
            title="one call",
            parts=("communicate_s", "compress_s", "decompress_s", "pack_s", "unpack_s"),
        ),
    ),
)
