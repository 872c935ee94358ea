"""Virtual token counter: the tenant that has been served least, of those who wait, is next.

Sheng, Cao, Li, Zhu, Li, Zhuo, Gonzalez and Stoica, 2024, "Fairness in Serving Large Language Models" (OSDI 2024),
algorithm 2.

Algorithm: a counter a tenant, raised by wp for each token of a prompt when it is admitted and by wq for each token of
output; the first request of the tenant with the lowest counter is admitted. A tenant that has had nothing waiting is
lifted to the least counter of those who have, so that idleness gives no credit.
Cost: none beside a sum a tenant.
Differences: the cache is shared, so that the comparison with schedulers that use it is one of order alone;
what is cached is charged nothing. A request that is computed anew after it lost its memory is not charged again.
Limits: it does not look at the cache, and so breaks sharing by taking turns.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Request, Step, View, admit, begin_chunked


@technique(
    name="vtc",
    family="serving",
    implements=("serve", "simulate"),
    summary="the tenant that has got least is next",
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
        self._waited: set[str] = set()

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit tenant by tenant."""
        room = begin_chunked(view)
        queues: dict[str, list[Request]] = {}
        for request in view.waiting:
            queues.setdefault(request.tenant, []).append(request)
        self._lift(set(queues))
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
        return room.step

    def _lift(self, waiting: set[str]) -> None:
        """Let nobody begin below those who waited all the time."""
        stayed = [self._counters[t] for t in waiting & self._waited]
        for tenant in waiting - self._waited:
            # Algorithm 2 lifts to the least counter of those who wait; where nobody did, the highest one stands in for
            # its "last client that left".
            least = min(stayed) if stayed else max(self._counters.values(), default=0.0)
            # Lifted and never lowered: who was served much and went away must not come back as new.
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), least)
        self._waited = waiting

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Charge what was answered."""
        self._counters[tenant] = self._counters.get(tenant, 0.0) + self._output_weight * output_tokens
