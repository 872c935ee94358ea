"""Sends requests to a memory that is not there."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.serving.unified import Unified

from paceline import technique
from paceline.families.serving.api.deploying import Load


@technique(name="routes-nowhere", family="serving", implements=("simulate",), summary="known to be wrong")
class Mutant(Unified):
    """Known to be wrong."""

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Name the one behind the last."""
        return len(loads)
