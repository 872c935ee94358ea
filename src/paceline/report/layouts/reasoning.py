"""How results of reasoning lie on pages."""

from __future__ import annotations

from paceline.families.reasoning.core.planning.metrics import ANOTHER_MODELS
from paceline.report.layout import FrontierSpec, Layout

LAYOUT = Layout(
    swept=("tokens_reordered",),
    frontiers=(
        FrontierSpec(
            across="tokens_reordered",
            up="accuracy_reordered",
            beneath="votes",
            beneath_name="plain vote",
            apart="gain_at_equal_tokens",
            apart_reason=ANOTHER_MODELS,
        ),
        FrontierSpec(across="critical_path_tokens", up="accuracy_reordered"),
    ),
    quality={"accuracy_reordered": 0.01, "accuracy": 0.01},
    question="Which way of thinking longer is worth its tokens?",
    answers=("accuracy", "accuracy_reordered"),
)
