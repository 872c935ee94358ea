"""Has two memories where there is room for one."""

from __future__ import annotations

from paceline.baselines.serving.unified import Unified

from paceline import technique
from paceline.families.serving.api.deploying import Given, InParts, Layout, Memory, Worker


@technique(name="has-more-memory", family="serving", implements=("simulate",), summary="known to be wrong")
class Mutant(Unified):
    """Known to be wrong."""

    def layout(self, given: Given) -> Layout:
        """Take twice what there is."""
        memories = tuple(Memory(device=0, blocks=given.blocks_per_device) for _ in range(2))
        return Layout(
            memories=memories, workers=tuple(Worker(memory=m, scheduler=InParts()) for m in range(2))
        )
