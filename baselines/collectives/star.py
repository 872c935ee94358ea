"""Star: every rank sends to one hub and gets the result from it, so that two latencies are paid, not 2(n − 1).

Li et al., "TPI-LLM: Serving 70B-scale LLMs Efficiently on Low-resource Edge Devices", arXiv 2410.00531, 2024,
section 3.3: between edge devices the latency of a link, not its rate, bounds an all-reduce of activations.

Algorithm (hub = rank 0, or the root):
1. All other ranks send their buffers to the hub at once.
2. The hub adds them in rank order, or puts them in their places (all-gather).
3. The hub sends the result, or each rank's share of it (reduce-scatter), to all other ranks at once.
A broadcast is step 3, a reduction steps 1 and 2.

Cost of an all-reduce of S bytes on n ranks: the hub sends (n − 1) · S, each other rank S; 2 dependent steps.
All-gather: S/n to the hub and S from it; reduce-scatter: S to the hub and S/n from it, for each other rank.
Memory: (n − 1) · S at the hub for sums.

Limits: the hub's link carries everything, so long buffers on slow links belong to the ring.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="star",
    family="collectives",
    implements=("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter"),
    summary="one hub adds everything and answers everyone",
    paper="tpi-llm",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3.3 by the header, not read for this card",
            "code": "github.com/Lizonghang/TPI-LLM: src/tpi_llm/distributed/comm.py",
        },
        "deviations": (
            (
                "The hub is one of the tensor-parallel ranks; the authors' all-reduce pushes to and pulls from a "
                "key-value store of MXNet."
            ),
            "The paper has the all-reduce only.",
        ),
        "constants": {},
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class Star:
    """Collectives through a hub."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.hub = problem.root if problem.operation in ("broadcast", "reduce") else 0
        self.others = [r for r in range(problem.world_size) if r != self.hub]
        self.is_hub = problem.rank == self.hub
        adds = self.is_hub and problem.operation in ("all_reduce", "reduce", "reduce_scatter")
        # A place for each contribution: with one place the hub could post one receive
        # at a time, and senders would queue.
        self.incoming = problem.empty(len(self.others) if adds else 0, problem.count)
        asks = not self.is_hub and problem.operation in ("all_reduce", "broadcast")
        # Beside the buffer, since its receive stands open while the buffer itself is still being sent.
        self.answer = problem.empty(problem.count if asks else 0)
        self.total = problem.empty(problem.count if problem.operation == "reduce_scatter" and adds else 0)

    def run(self, *buffers: Tensor) -> None:
        """Perform the problem's operation."""
        operation = self.problem.operation
        if operation == "all_gather":
            self._all_gather(*buffers)
        elif operation == "reduce_scatter":
            self._reduce_scatter(*buffers)
        else:
            self._through_hub(buffers[0])

    def _through_hub(self, buffer: Tensor) -> None:
        inwards, outwards = self.problem.operation != "broadcast", self.problem.operation != "reduce"
        if self.is_hub:
            if inwards:
                self._add_others(buffer)
            if outwards:
                self._from_hub(buffer)
            return
        # The answer is asked for before the question is sent, so that the hub need not wait for the asking.
        answer = self.comm.start(receives=[(self.answer, self.hub)]) if outwards else None
        if inwards:
            self.comm.send(buffer, self.hub)
        if answer is not None:
            answer.wait()
            buffer.copy_(self.answer)

    def _from_hub(self, buffer: Tensor) -> None:
        self.comm.start(sends=[(buffer, other) for other in self.others]).wait()

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        if not self.is_hub:
            self.comm.exchange(send, self.hub, receive, self.hub)
            return
        shares = receive.view(self.problem.world_size, self.problem.share)
        arriving = self.comm.start(receives=[(shares[other], other) for other in self.others])
        shares[self.hub].copy_(send)
        arriving.wait()
        # The whole result goes to everyone, a receiver's own share included: one contiguous message instead of two.
        self._from_hub(receive)

    def _reduce_scatter(self, send: Tensor, receive: Tensor) -> None:
        if not self.is_hub:
            self.comm.exchange(send, self.hub, receive, self.hub)
            return
        # The input must stay as it was.
        self.total.copy_(send)
        self._add_others(self.total)
        shares = self.total.view(self.problem.world_size, self.problem.share)
        leaving = self.comm.start(sends=[(shares[other], other) for other in self.others])
        receive.copy_(shares[self.hub])
        leaving.wait()

    def _add_others(self, total: Tensor) -> None:
        self.comm.start(receives=list(zip(self.incoming, self.others, strict=True))).wait()
        # In rank order, not in order of arrival: floating-point sums depend on it, and calls must repeat bit by bit.
        for contribution in self.incoming:
            total.add_(contribution)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    others, item = problem.world_size - 1, problem.item_bytes
    whole, share = problem.count * item, problem.share * item
    to_hub = {"broadcast": 0, "all_gather": share}.get(problem.operation, whole)
    from_hub = {"reduce": 0, "reduce_scatter": share}.get(problem.operation, whole)
    if others == 0:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    return Cost(
        # Whoever sends more: the hub in an all-reduce or all-gather, the others in a reduce-scatter.
        sent_bytes=max(to_hub, others * from_hub),
        messages=others if from_hub else 1,
        total_bytes=others * (to_hub + from_hub),
        steps=(1 if to_hub else 0) + (1 if from_hub else 0),
    )
