"""Star: every rank sends to one hub and gets the result from it, so that two latencies are paid, not 2(n − 1).

Li et al., "TPI-LLM: Serving 70B-scale LLMs Efficiently on Low-resource Edge Devices", arXiv 2410.00531, 2024,
section 3.3: between edge devices the latency of a link, not its rate, bounds an all-reduce of activations.

Algorithm (hub = rank 0, or the root):
1. All other ranks send their buffers to the hub at once.
2. The hub adds them in rank order.
3. The hub sends the sum to all other ranks at once.
A broadcast is step 3, a reduction steps 1 and 2.

Cost of an all-reduce of S bytes on n ranks: the hub sends (n − 1) · S, each other rank S; 2 dependent steps.

Difference from the paper: the hub is one of the tensor-parallel ranks, as in its implementation; no master process.
Limits: the hub's link carries everything, so long buffers on slow links belong to the ring.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.problem import Comm, Cost, Problem


@technique(
    name="star",
    family="collectives",
    implements=("all_reduce", "broadcast", "reduce"),
    summary="one hub adds everything and answers everyone",
    paper="tpi-llm",
    properties={"exact": True},
)
class Star:
    """Collectives through a hub."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.hub = problem.root if problem.operation != "all_reduce" else 0
        self.others = [r for r in range(problem.world_size) if r != self.hub]
        adds = problem.rank == self.hub and problem.operation != "broadcast"
        self.incoming = problem.empty(len(self.others) if adds else 0, problem.count)

    def run(self, buffer: Tensor) -> None:
        """Perform the problem's operation on ``buffer`` [count]."""
        if self.problem.operation != "broadcast":
            self._to_hub(buffer)
        if self.problem.operation != "reduce":
            self._from_hub(buffer)

    def _to_hub(self, buffer: Tensor) -> None:
        if self.problem.rank != self.hub:
            self.comm.send(buffer, self.hub)
            return
        self.comm.start(receives=list(zip(self.incoming, self.others, strict=True))).wait()
        for contribution in self.incoming:
            buffer.add_(contribution)

    def _from_hub(self, buffer: Tensor) -> None:
        if self.problem.rank != self.hub:
            self.comm.receive(buffer, self.hub)
        else:
            self.comm.start(sends=[(buffer, other) for other in self.others]).wait()


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, size = problem.world_size, problem.count * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    inwards = problem.operation != "broadcast"
    outwards = problem.operation != "reduce"
    messages = n - 1 if outwards else 1
    return Cost(
        sent_bytes=messages * size,
        messages=messages,
        total_bytes=(inwards + outwards) * (n - 1) * size,
        steps=inwards + outwards,
    )
