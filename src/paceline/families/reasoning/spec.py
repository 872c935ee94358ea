"""The reasoning family, put together from its operations; free of torch."""

from __future__ import annotations

from paceline.base.families.operation import computed_metrics_in, family_of, operations_in
from paceline.families.reasoning.core.planning.quantities import QUANTITIES

FAMILY = family_of(
    operations_in("paceline.families.reasoning"),
    name="reasoning",
    summary="Test-time methods that draw several traces of one model: accuracy against tokens, and their chain.",
    computed=computed_metrics_in("paceline.families.reasoning"),
    quantities=QUANTITIES,
    default_metrics=("tokens_reordered", "accuracy_reordered", "critical_path_tokens"),
)
