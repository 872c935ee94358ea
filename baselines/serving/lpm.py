"""Longest prefix match: of those who wait, the one with most of its prompt in the cache is next.

Zheng, Yin, Xie, Sun, Huang, Yu, Cao, Kozyrakis, Stoica, Gonzalez, Barrett and Sheng, 2024, "SGLang: Efficient Execution
of Structured Language Model Programs" (NeurIPS 2024), section 3, cache-aware scheduling.

Algorithm: chunked prefill over a shared cache; the queue is sorted by cached tokens, longest first, then by arrival.
Cost: a lookup of every waiting request whenever the cache has changed.
Differences: the paper's tree of tokens is here a chain of blocks, so matches are whole blocks.
Limits: who shares nothing may wait for ever while others come who do; a tenant with a long prefix has the server.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View, admit, begin_chunked


@technique(
    name="lpm",
    family="serving",
    implements=("serve", "simulate"),
    summary="the longest cached beginning first",
)
class LongestPrefixMatch:
    """Admits those with the longest cached beginning first."""

    shares_prefixes = True

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit by what is cached."""
        room = begin_chunked(view)
        if room.tokens and room.places:
            cached = view.cache.cached_tokens
            # Longest match first walks the tree of prefixes depth first: one branch is used up before another may
            # evict it (section 3). Ties go by arrival, so that equal runs plan equal steps.
            for request in sorted(view.waiting, key=lambda r: (-cached(r.number), r.arrived_s, r.number)):
                if not admit(room, view, request):
                    break
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
