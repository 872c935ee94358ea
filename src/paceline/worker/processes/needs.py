"""Which ranks need PyTorch: it takes longer to import than many a program runs. Free of torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paceline.base.families.family import load_family

PROCESSORS = frozenset({"cpu", "fake"})
"""Devices that are none of PyTorch's accelerators."""


def need_torch(blocks: Iterable[Mapping[str, Any]], runner: Mapping[str, Any]) -> bool:
    """Tell whether some rank of blocks has to import PyTorch.

    Args:
        blocks: Of a plan.
        runner: The resolved profile.
    """
    return runner.get("device") not in PROCESSORS or any(_needs_torch(block) for block in blocks)


def _needs_torch(block: Mapping[str, Any]) -> bool:
    family = load_family(block["family"])
    return block["ranks"] > 1 or family.needs_torch(str(block["params"].get(family.operation_key)))
