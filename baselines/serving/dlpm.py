"""Deficit longest prefix match: locality decides among tenants who have credit, and credit is refilled in quanta.

Cao, Wang, Mao, Hsu, Yin, Xia, Li, Liu, Zhang, Zhou, Sheng, Gonzalez and Stoica, 2025, "Locality-aware Fair Scheduling
in LLM Serving" (arXiv:2501.14312), section 4.1 (deficit longest prefix match).

Algorithm: the queue is sorted by cached tokens; a request is admitted if its tenant's credit is above zero, and the
credit falls by the weighted tokens that have to be computed of its prompt, then by its answer's as they come. When
nobody who waits has credit, everybody who waits and has none is given a quantum.
Cost: that of longest prefix match, and a number a tenant.
Limits: two tenants' service differs by at most about a quantum and what is admitted at once; a small quantum takes
turns as a fair queue does, a large one is longest prefix match.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View, admit, begin_chunked


@technique(
    name="dlpm",
    family="serving",
    implements=("serve", "simulate"),
    summary="the longest cached beginning first, of tenants that have credit left",
    paper="dlpm",
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "section 4.1 by the header, not read for this card",
            "code": "none found",
        },
        "deviations": (
            "A tenant with nothing waiting keeps no credit above one quantum.",
            "Prompts are computed in parts, as the engine does.",
        ),
        "constants": {
            "quantum": {"here": 512.0, "authors": "not public"},
            "prompt_weight": {"here": 1.0, "authors": "1 in VTC's code, whose service it is"},
            "output_weight": {"here": 2.0, "authors": "2 in VTC's code"},
        },
        "checked_by": (
            "tests/unit/test_engine.py::test_longest_prefix_match_starves_whom_a_fair_scheduler_serves",
            "tests/unit/test_simulation.py::test_of_equal_rights_one_tenants_queue_may_not_be_served_without_bound",
        ),
    },
)
class DeficitLongestPrefixMatch:
    """Admits those with the longest cached beginning first, if their tenant has credit.

    Args:
        quantum: Weighted tokens of a refill.
        prompt_weight: Of a prompt's computed token.
        output_weight: Of an answer's token.
    """

    shares_prefixes = True

    def __init__(
        self, *, quantum: float = 512.0, prompt_weight: float = 1.0, output_weight: float = 2.0
    ) -> None:
        if not quantum > 0:
            raise ValueError("a quantum is above 0")
        self._quantum, self._prompt_weight, self._output_weight = quantum, prompt_weight, output_weight
        self._credit: dict[str, float] = {}

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit by what is cached and by credit."""
        room = begin_chunked(view)
        waiting = list(view.waiting)
        while waiting and room.tokens and room.places:
            self._refill({r.tenant for r in waiting})
            cached = view.cache.cached_tokens
            # Credit decides who may go, the cached prefix alone who goes first: dlpm is lpm over those with credit.
            order = sorted(waiting, key=lambda r: (-cached(r.number), r.arrived_s, r.number))
            for request in order:
                if self._credit[request.tenant] <= 0:
                    continue
                tokens = request.tokens - cached(request.number)
                # The step ends with the first eligible request that does not fit: smaller ones must not overtake it
                # for ever.
                if not admit(room, view, request):
                    return room.step
                # Its tenant paid for the prompt when it was first admitted; losing its memory was the engine's doing.
                if not request.preempted:
                    self._credit[request.tenant] -= self._prompt_weight * tokens
                waiting.remove(request)
        return room.step

    def _refill(self, tenants: set[str]) -> None:
        """Give quanta to those who wait until somebody has credit."""
        for tenant in tenants:
            # A new tenant starts with one quantum, and nobody saves more than one: idle time buys no burst.
            self._credit[tenant] = min(self._credit.get(tenant, self._quantum), self._quantum)
        # Several quanta at once where long answers ran deep into debt. All who wait get them, so who owes more still
        # waits longer.
        while all(self._credit[t] <= 0 for t in tenants):
            for tenant in tenants:
                self._credit[tenant] += self._quantum

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Charge what was answered."""
        self._credit[tenant] = self._credit.get(tenant, 0.0) - self._output_weight * output_tokens
