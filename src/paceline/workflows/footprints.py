"""What the cases of a plan need of a rank's memory, and whether this machine has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.base.families.family import load_family
from paceline.base.families.footprint import Footprint
from paceline.base.families.operation import Operation
from paceline.spec.plans.plan import Plan

RANK_BYTES = 366 << 20
"""What a rank's process takes beside its model: the peak of that from which ranks of training are forked, PyTorch 2.13
on a processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one technique needs at one point."""

    suite: str
    label: str
    params: Mapping[str, Any]
    ranks: int
    footprint: Footprint

    @property
    def rank_bytes(self) -> float | None:
        """Of one rank, with its process; None where the technique states no state."""
        total = self.footprint.total_bytes
        return None if total is None else total + RANK_BYTES

    def fits(self, machine_bytes: int | None) -> bool | None:
        """Tell whether training alone fits into one machine's memory, all ranks of it; None where nobody can say."""
        if self.rank_bytes is None or machine_bytes is None:
            return None
        return self.ranks * self.rank_bytes <= machine_bytes


def needs_of(plan: Plan) -> list[Need]:
    """Return what the cases of a plan need, of operations that foretell it."""
    found = []
    for block in plan.blocks:
        family = load_family(block["family"])
        operation = family.operations.get(str(block["params"].get(family.operation_key, "")))
        if not isinstance(operation, Operation) or operation.footprint is None:
            continue
        for case in block["cases"]:
            footprint = operation.footprint(block["params"], case["module"], case["options"])
            if footprint is None:
                continue
            found.append(
                Need(
                    suite=block["suite"],
                    label=case["label"],
                    params=block["params"],
                    ranks=int(block["ranks"]),
                    footprint=footprint,
                )
            )
    return found
