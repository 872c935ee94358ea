"""Lets everything fit by replacing a method of the contract."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Room, Step, View


@technique(name="replaces-the-room", family="serving", implements=("serve",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Plan what it should not."""
        Room.fits = lambda self, request, tokens: True  # type: ignore[method-assign]
        room = Room(view)
        for request in (*view.running, *view.waiting):
            room.take(request, min(request.missing, room.tokens))
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
