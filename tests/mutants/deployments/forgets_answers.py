"""Has a worker for prompts and none for answers."""

from __future__ import annotations

from paceline.baselines.serving.unified import Unified

from paceline import technique
from paceline.families.serving.api.deploying import Given, InParts, Layout, Memory, Worker


@technique(name="forgets-answers", family="serving", implements=("simulate",), summary="known to be wrong")
class Mutant(Unified):
    """Known to be wrong."""

    def layout(self, given: Given) -> Layout:
        """Leave a phase out."""
        memories = (Memory(device=0, blocks=given.blocks_per_device),)
        return Layout(memories=memories, workers=(Worker(memory=0, scheduler=InParts(), phase="prefill"),))
