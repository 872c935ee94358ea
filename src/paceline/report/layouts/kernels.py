"""How results of kernels lie on pages."""

from __future__ import annotations

from paceline.report.layout import FrontierSpec, Layout

LAYOUT = Layout(
    frontiers=(FrontierSpec(across="latency", up="relative_error"),),
    quality={"relative_error": 0.01},
    question="Which kernel for this shape, and does compiling pay?",
)
