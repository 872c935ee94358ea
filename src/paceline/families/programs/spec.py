"""The programs family, put together from its operations; free of torch.

It is a family of its own because a program belongs to none of the five that hold techniques of papers: it has no oracle
but the one that its owner brings, and its figures meet no other family's on a board.
"""

from __future__ import annotations

from paceline.base.families.operation import family_of, operations_in
from paceline.families.programs.core.reported import metric_named

FAMILY = family_of(
    operations_in("paceline.families.programs"),
    name="programs",
    summary="Any program: time, processor time and memory measured from outside, and what it reports of itself.",
    default_metrics=("wall_time",),
    named=metric_named,
)
