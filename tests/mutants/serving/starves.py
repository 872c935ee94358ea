"""Serves whoever came first, and nobody else while it runs: known to be slow, and right."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Room, Step, View


@technique(name="starves", family="serving", implements=("serve",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Plan what it should not."""
        room = Room(view)
        for request in (*view.running, *view.waiting)[:1]:
            room.take(request, min(request.missing, room.tokens))
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
