"""Virtual token counter: the tenant that has been served least, of those who wait, is next.

Sheng, Cao, Li, Zhu, Li, Zhuo, Gonzalez and Stoica, 2024, "Fairness in Serving Large Language Models" (OSDI 2024),
algorithm 2.

Algorithm: a counter a tenant, raised by wp for each token of a prompt when it is admitted and by wq for each token of
output as it comes; the first request of the tenant with the lowest counter is admitted. A tenant that begins to wait is
lifted to the least counter of those who wait already, or to that of the last one who stopped waiting where nobody does,
so that idleness gives no credit.
Cost: none beyond a sum a tenant.
Limits: it does not look at the cache, and so breaks sharing by taking turns.
"""

from __future__ import annotations

from collections.abc import Collection

from paceline import technique
from paceline.families.serving.api.scheduling import Request, Step, View, admit, begin_chunked


@technique(
    name="vtc",
    family="serving",
    implements=("serve", "simulate"),
    summary="the tenant that has got least is next",
    fidelity={
        "source": {
            "read": "code",
            "paper": "algorithm 2 by the header, not read for this card",
            "code": "github.com/Ying1123/VTC-artifact: slora/server/router/vtc_req_queue.py",
        },
        "deviations": (
            (
                "The cache is shared, so that the comparison with schedulers that use it is one of order alone; "
                "what is cached is charged nothing."
            ),
            (
                "Prompts are computed in parts, and memory is taken as it is needed; the authors admit a request "
                "only if its longest answer will fit."
            ),
            (
                "Where nobody waits, a tenant that begins to is lifted to the counter of the last one who "
                "stopped; the authors' code leaves it."
            ),
            "Arrivals are seen at the next step, in their order.",
            "A request that lost its memory waits again and is not charged again for its prompt.",
            "No tenant has a weight.",
        ),
        "constants": {
            "prompt_weight": {
                "here": 1.0,
                "authors": "1 (input_price), vtc_req_queue.py",
                "official": 1.0,
                "source": "github.com/Ying1123/VTC-artifact: slora/server/router/vtc_req_queue.py",
            },
            "output_weight": {
                "here": 2.0,
                "authors": "2 (output_price), vtc_req_queue.py",
                "official": 2.0,
                "source": "github.com/Ying1123/VTC-artifact: slora/server/router/vtc_req_queue.py",
            },
        },
        "checked_by": (
            "tests/unit/test_engine.py::test_longest_prefix_match_starves_whom_a_fair_scheduler_serves",
        ),
    },
)
class VirtualTokenCounter:
    """Admits the first request of the tenant with the lowest counter.

    Args:
        prompt_weight: wp.
        output_weight: wq.
    """

    shares_prefixes = True

    def __init__(self, *, prompt_weight: float = 1.0, output_weight: float = 2.0) -> None:
        self._prompt_weight, self._output_weight = prompt_weight, output_weight
        self._counters: dict[str, float] = {}
        self._queued: set[str] = set()
        self._last_left: str | None = None

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit tenant by tenant."""
        room = begin_chunked(view)
        queues: dict[str, list[Request]] = {}
        for request in view.waiting:
            queues.setdefault(request.tenant, []).append(request)
        self._lift(queues)
        while queues:
            tenant = min(queues, key=lambda t: (self._counters[t], t))
            request = queues[tenant].pop(0)
            tokens = request.tokens - view.cache.cached_tokens(request.number)
            # The tenant that was served least does not fit: nobody with a higher counter may take its turn.
            if not admit(room, view, request):
                break
            if not request.preempted:
                # At once and not when it is computed, so that turns change within a step.
                self._counters[tenant] += self._prompt_weight * tokens
            if not queues[tenant]:
                del queues[tenant]
                self._last_left = tenant
        # Who waits after admission: a tenant whose last request was just admitted has left, and is lifted when it
        # comes again, be it at the next step.
        self._queued = set(queues)
        return room.step

    def _lift(self, tenants: Collection[str]) -> None:
        """Let nobody who begins to wait do so below those who wait already.

        Args:
            tenants: Who waits now, in the order of their first request.
        """
        queued = [t for t in tenants if t in self._queued]
        for tenant in tenants:
            if tenant in self._queued:
                continue
            others = queued or ([self._last_left] if self._last_left is not None else [])
            least = min((self._counters[t] for t in others), default=0.0)
            # Lifted and never lowered: who was served much and went away must not come back as new.
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), least)
            queued.append(tenant)

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Charge what was answered."""
        self._counters[tenant] = self._counters.get(tenant, 0.0) + self._output_weight * output_tokens
