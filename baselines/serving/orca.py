"""Orca: batches change from step to step; whoever came first is admitted first.

Yu, Jeong, Kim, Kim and Chun, 2022, "Orca: A Distributed Serving System for Transformer-Based Generative Models"
(OSDI 2022), sections 3.1 (iteration-level scheduling) and 3.2 (selective batching).

Algorithm: in each step all running requests get their next token; while there is a place, room and budget, the first in
the queue is admitted with its whole prompt.
Cost: a step takes as long as its prompts; running requests wait for the prompts of others.
Differences: the paper reserves memory for the longest answer when it admits a request; here answers are of unknown
length, so memory is taken as it is needed, and where it ends the latest admitted gives way and is computed anew. A
prompt above the budget of a step is computed alone, in parts.
Limits: a long prompt stalls everybody for its step; no fairness between tenants.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Room, Step, View


@technique(
    name="orca",
    family="serving",
    implements=("serve", "simulate"),
    summary="continuous batching, first come first served, whole prompts",
)
class Orca:
    """Admits whole prompts in the order of their arrival."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Decode, then admit."""
        room = Room(view)
        room.decode(view.running)
        for request in view.running:
            if request.missing > 1:  # a prompt above the budget of a step, or one computed anew
                room.take(request, min(request.missing, room.tokens))
        for request in view.waiting:
            tokens = request.missing
            # A prompt above a step's budget fits only where nothing but decodes is in the step, and is then begun in
            # part; the loop above goes on with it. Others are admitted whole or wait.
            whole = min(tokens, view.token_budget - len(view.running))
            if not room.take(request, tokens if tokens <= room.tokens else whole):
                break
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
