"""Prefix caching: full blocks are found by their tokens; who begins alike does not compute it again.

Kwon, Li, Zhuang, Sheng, Zheng, Yu, Gonzalez, Zhang and Stoica, 2023, "Efficient Memory Management for Large Language
Model Serving with PagedAttention" (SOSP 2023), section 4.4; automatic prefix caching as in vLLM: blocks known by a
chain of hashes, the longest unused given up first.

Algorithm: chunked prefill; a request begins behind the longest beginning of its tokens that is in the cache.
Cost: n − cached tokens of a prompt instead of n; a lookup a block.
Differences: blocks are known by their tokens and the block before, not by a hash that could collide.
Limits: the order of requests is that of their arrival, so what is shared may have been given up when it is needed.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View, admit, begin_chunked


@technique(
    name="lru-prefix-cache",
    family="serving",
    implements=("serve", "simulate"),
    summary="chunked prefill over a cache that is shared by what requests begin with",
)
class LruPrefixCache:
    """Admits prompts in parts behind what is cached of them, in the order of their arrival."""

    # The only difference from chunked-prefill, whose plan this is: what the two differ by is what caching gains.
    shares_prefixes = True

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit."""
        room = begin_chunked(view)
        for request in view.waiting:
            if not admit(room, view, request):
                break
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
