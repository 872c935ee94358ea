"""Double deficit longest prefix match: locality decides among the servers where a tenant has credit, and in each queue.

Cao, Wang, Mao, Hsu, Yin, Xia, Li, Liu, Zhang, Zhou, Sheng, Gonzalez and Stoica, 2025, "Locality-aware Fair Scheduling
in LLM Serving" (arXiv:2501.14312), D2LPM: a deficit for each client and worker, by which a router balances fairness,
locality and load; deficit longest prefix match on every worker.

Algorithm: of the servers where its tenant has credit, a request goes to the one that will hold most of its beginning;
of equals to the one with least to compute. The tenant's credit there falls by the weighted tokens of the prompt that
are not held, and of the answer as it comes; a tenant without credit anywhere is given a quantum on every server. Each
server's queue is that of deficit longest prefix match.
Cost: a number for each tenant and server, and a lookup of a prompt's beginning in every server's cache.
Limits: a small quantum on servers spreads a tenant's beginnings over all of them; a large one sends a tenant with one
beginning to one server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from paceline.baselines.serving.dlpm import DeficitLongestPrefixMatch

from paceline import technique
from paceline.families.serving.api.deploying import Busy, Given, Layout, Load, Memory, Worker, least_loaded
from paceline.families.serving.api.scheduling import Request, Scheduler, Step, View


@technique(
    name="d2lpm",
    family="serving",
    implements=("simulate",),
    summary="a router with a credit for each tenant and server, before queues with credits",
    paper="dlpm",
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "the abstract by the header, not read for this card",
            "code": "none found",
        },
        "deviations": (
            (
                "What a server will hold is known to the router at once; a router beside real servers guesses it "
                "from what it has sent."
            ),
            "The order among equals and the quanta are ours, since the abstract does not state the paper's.",
        ),
        "constants": {
            "quantum": {"here": 512.0, "authors": "not public"},
            "server_quantum": {"here": 2048.0, "authors": "not public"},
            "prompt_weight": {"here": 1.0, "authors": "1 in VTC's code, whose service it is"},
            "output_weight": {"here": 2.0, "authors": "2 in VTC's code"},
        },
        "checked_by": (
            "tests/unit/test_simulation.py::test_a_tenant_goes_where_its_beginnings_are_until_its_credit_there_is_used_up",
            "tests/unit/test_simulation.py::test_schedulers_and_routers_keep_all_laws_over_sessions",
        ),
    },
)
class DoubleDeficitLongestPrefixMatch:
    """Routes by locality among servers where a tenant has credit.

    Args:
        quantum: Weighted tokens of a refill in a server's queue.
        server_quantum: Weighted tokens of a refill of a tenant on every server.
        prompt_weight: Of a prompt's computed token.
        output_weight: Of an answer's token.
    """

    def __init__(
        self,
        *,
        quantum: float = 512.0,
        server_quantum: float = 2048.0,
        prompt_weight: float = 1.0,
        output_weight: float = 2.0,
    ) -> None:
        if not server_quantum > 0:
            raise ValueError("a quantum is above 0")
        self._quantum, self._server_quantum = quantum, server_quantum
        self._prompt_weight, self._output_weight = prompt_weight, output_weight
        self._credit: dict[str, list[float]] = {}

    def layout(self, given: Given) -> Layout:
        """Give each device one memory and one queue."""
        devices = range(given.devices)
        return Layout(
            memories=tuple(
                Memory(device=d, blocks=given.blocks_per_device, shares_prefixes=True) for d in devices
            ),
            workers=tuple(Worker(memory=d, scheduler=self._queue(d)) for d in devices),
        )

    def _queue(self, server: int) -> Scheduler:
        inner = DeficitLongestPrefixMatch(
            quantum=self._quantum, prompt_weight=self._prompt_weight, output_weight=self._output_weight
        )
        return _Queue(inner, lambda tenant, tokens: self._answered(tenant, server, tokens))

    def _answered(self, tenant: str, server: int, output_tokens: int) -> None:
        # The length of an answer is unknown when it is routed, so its tokens are charged where they come.
        self._credit[tenant][server] -= self._output_weight * output_tokens

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Take the server that will hold most of it, of those where its tenant has credit."""
        credit = self._credit.setdefault(tenant, [self._server_quantum] * len(loads))
        # All servers are refilled together: differences between them, which keep a tenant from staying on one server,
        # survive a refill.
        while max(credit) <= 0:
            credit[:] = [c + self._server_quantum for c in credit]
        open_to = [s for s, c in enumerate(credit) if c > 0]
        # Fairness first, then locality, then load: an order of keys and no weighted sum, so there is no scale to tune.
        most = max(loads[s].coming_tokens for s in open_to)
        server = least_loaded(loads, [s for s in open_to if loads[s].coming_tokens == most])
        credit[server] -= self._prompt_weight * (prompt_tokens - most)
        return server

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Stay."""
        return memory

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Give the only worker the device."""
        return {w.worker: 1.0 for w in workers}


class _Queue:
    """A server's queue, which tells the router what was answered.

    Args:
        inner: The queue.
        tell: Hears of a tenant's tokens of output.
    """

    shares_prefixes = True

    def __init__(self, inner: DeficitLongestPrefixMatch, tell: Callable[[str, int], None]) -> None:
        self._inner, self._tell = inner, tell

    def plan(self, view: View) -> Step:
        """Decode, go on with prompts, admit by what is cached and by credit."""
        step: Step = self._inner.plan(view)
        return step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Charge what was answered, here and with the router."""
        self._inner.served(tenant, prompt_tokens, output_tokens)
        # Prompts are not told: the router charged them when it chose the server.
        self._tell(tenant, output_tokens)
