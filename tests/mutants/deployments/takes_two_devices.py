"""Gives both workers of a device all of it."""

from __future__ import annotations

from paceline.baselines.serving.unified import Unified

from paceline import technique
from paceline.families.serving.api.deploying import Given, InParts, Layout, Memory, Worker


@technique(name="takes-two-devices", family="serving", implements=("simulate",), summary="known to be wrong")
class Mutant(Unified):
    """Known to be wrong."""

    def layout(self, given: Given) -> Layout:
        """Put two workers on one memory."""
        memories = (Memory(device=0, blocks=given.blocks_per_device),)
        prefill = Worker(memory=0, scheduler=InParts(), phase="prefill")
        return Layout(
            memories=memories, workers=(prefill, Worker(memory=0, scheduler=InParts(), phase="decode"))
        )
