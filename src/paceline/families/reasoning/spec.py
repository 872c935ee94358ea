"""The reasoning family: its operations, and how their results lie on pages. Free of torch."""

from __future__ import annotations

from paceline.base.family import FrontierSpec
from paceline.base.operation import computed_metrics_in, family_of, operations_in
from paceline.families.reasoning.core.metrics import ANOTHER_MODELS

FAMILY = family_of(
    operations_in("paceline.families.reasoning"),
    name="reasoning",
    summary="Test-time methods that draw several traces of one model: accuracy against tokens, and their chain.",
    computed=computed_metrics_in("paceline.families.reasoning"),
    default_metrics=("tokens_reordered", "accuracy_reordered", "critical_path_tokens"),
    swept=("tokens_reordered",),
    answers=("accuracy", "accuracy_reordered"),
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
)
