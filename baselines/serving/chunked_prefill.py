"""Chunked prefill: a step has a budget of tokens; decodes go first, prompts get the rest in parts.

Agrawal, Kedia, Panwar, Mohan, Kwatra, Gulavani, Tumanov and Ramjee, 2024, "Taming Throughput-Latency Tradeoff in LLM
Inference with Sarathi-Serve" (OSDI 2024), section 4.1 and algorithm 3.

Algorithm: give every request that decodes its token; go on with prompts that have begun; admit the first in the queue
with as much of its prompt as the budget allows.
Cost: a step never has more than its budget of tokens, so no prompt stalls those who decode; a prompt of n tokens needs
n / budget steps, each of which reads what was computed of it before.
Differences: memory is taken as it is needed, and the latest admitted gives way where it ends.
Limits: the budget trades time to first token against time per token; who came first goes first, whoever that is.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View, admit, begin_chunked


@technique(
    name="chunked-prefill",
    family="serving",
    implements=("serve", "simulate"),
    summary="decodes first; prompts in parts of what is left of a step",
)
class ChunkedPrefill:
    """Admits prompts in parts, in the order of their arrival."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit."""
        room = begin_chunked(view)
        for request in view.waiting:
            # First come, first served: a shorter prompt behind one that does not fit must not overtake it, or long
            # ones starve.
            if not admit(room, view, request):
                break
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
