"""BatchLLM: requests that begin alike run together, and what they share is computed once.

Zheng, Ji, Fang, Zhou, Liu and Peng, 2024, "BatchLLM: Optimizing Large Batched LLM Inference with Global Prefix Sharing
and Throughput-oriented Token Batching" (arXiv:2412.03594): its tree of prefixes, groups, order and batches.

Algorithm: a tree of the beginnings of all that wait; its first-level groups are run one after the other, those with
most requests for the tokens that they have to compute first, so that their decodes fill the steps of later prompts;
inside a group the walk is depth first. Who would compute a block that somebody else is computing is held back until it
is there. Steps are filled up to their budget of tokens and to the end of memory.
Cost: distinct blocks instead of all blocks of prompts; a sort of the queue whenever somebody new waits.
Limits: who comes later than its group's turn waits for a new sort; nobody is fair to single requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from paceline import technique
from paceline.families.serving.api.scheduling import Request, Step, View, admit, begin_chunked

Chain = tuple[int, ...]


@technique(
    name="batchllm",
    family="serving",
    implements=("serve", "simulate"),
    paper="batchllm",
    summary="groups of one beginning run together; nothing shared is computed twice",
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "the ledger's summary; the paper itself was not read",
            "code": "none found",
        },
        "deviations": (
            (
                "The engine's cache shares every level of the tree, so that no dynamic programme has to enlarge "
                "the first one."
            ),
            "Answers are of unknown length, so that a group's decoding is counted in requests.",
            "No kernel attends to shared blocks at once.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_held_batches.py::test_who_plans_over_a_batch_sees_all_of_it_when_it_is_held",
            "tests/unit/test_simulation.py::test_batchllm_reuses_all_that_can_be_reused_where_a_cache_alone_forgets",
        ),
    },
)
class BatchLlm:
    """Admits group by group of the tree of beginnings."""

    shares_prefixes = True

    def __init__(self) -> None:
        self._rank: dict[int, int] = {}

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit in the tree's order whoever computes nothing twice."""
        room = begin_chunked(view)
        if not (room.tokens and room.places and view.waiting):
            return room.step
        chains = {r.number: view.cache.beginning(r.number) for r in (*view.waiting, *view.running)}
        # Ranks are those of the last sort; whoever came, or was preempted, since then is in none and makes it stale.
        if any(r.number not in self._rank for r in view.waiting):
            self._sort(view.waiting, chains)
        size = view.block_size
        # Floor division: a block that is computed in part is not in the cache, which shares full blocks alone.
        under_way = {block for r in view.running for block in chains[r.number][r.computed // size :]}
        for request in sorted(view.waiting, key=lambda r: self._rank[r.number]):
            chain = chains[request.number]
            cached = view.cache.cached_tokens(request.number) // size
            # Its next block is being computed by somebody else. Admitted now it would be computed twice; a step later
            # it is a hit. Skipped and not a break: those behind need not wait for that.
            if cached < len(chain) and chain[cached] in under_way:
                continue
            if not admit(room, view, request):
                break
            # Within a step too: two requests with one new prefix must not both be admitted.
            under_way.update(chain[cached:])
        return room.step

    def _sort(self, waiting: Sequence[Request], chains: dict[int, Chain]) -> None:
        """Give everybody who waits a place: groups by requests a block to be computed, then depth first."""
        groups: dict[int, list[Request]] = defaultdict(list)
        for request in waiting:
            chain = chains[request.number]
            # Prompts without a full block share nothing and are groups of one; chains are 64-bit hashes, which small
            # negative numbers do not meet in practice.
            groups[chain[0] if chain else -request.number - 1].append(request)

        def worth(members: Sequence[Request]) -> float:
            shared = {block for r in members for block in chains[r.number]}
            # Decoding over prefill, the paper's order of groups, with requests for the unknown tokens of answers; 1
            # for what no block holds.
            return len(members) / (1 + len(shared))

        ordered = sorted(groups.values(), key=lambda g: (-worth(g), g[0].number))
        self._rank = {
            request.number: place
            # Tuples compare block by block, so requests below one node stand together: that is the depth-first walk.
            for place, request in enumerate(
                r for g in ordered for r in sorted(g, key=lambda r: (chains[r.number], r.number))
            )
        }

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
