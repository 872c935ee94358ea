"""The backend's own collectives (Gloo on CPU, NCCL on CUDA, RCCL on ROCm, HCCL on Ascend).

Algorithm: whatever the backend chooses. This is the baseline that every other technique is compared with.

Cost: the backend's secret. The communicator sees one call and no bytes; in a network namespace the kernel's interface
counters tell what really moved. (Gloo's reduce-scatter moves an all-reduce's bytes, for example.)

Limits: in-place operations only where the backend offers them; equal shares.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="native",
    family="collectives",
    implements=(
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "reduce",
        "send_recv",
    ),
    summary="the backend's own collective",
    properties={"exact": True},
)
class Native:
    """Calls the backend's collective of the same name."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self._run = getattr(self, f"_{problem.operation}")

    def run(self, *buffers: Tensor) -> None:
        """Perform the problem's operation."""
        self._run(*buffers)

    def _all_reduce(self, buffer: Tensor) -> None:
        self.comm.backend.all_reduce(buffer)

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        self.comm.backend.all_gather(receive, send)

    def _reduce_scatter(self, send: Tensor, receive: Tensor) -> None:
        self.comm.backend.reduce_scatter(receive, send)

    def _all_to_all(self, send: Tensor, receive: Tensor) -> None:
        self.comm.backend.all_to_all(receive, send)

    def _broadcast(self, buffer: Tensor) -> None:
        self.comm.backend.broadcast(buffer, self.problem.root)

    def _reduce(self, buffer: Tensor) -> None:
        # Other ranks' buffers may be overwritten; the operation defines the root's only.
        self.comm.backend.reduce(buffer, self.problem.root)

    def _send_recv(self, send: Tensor, receive: Tensor) -> None:
        size = self.problem.world_size
        # Backends have no collective for a shift: here the bytes are the communicator's, and have a closed form.
        self.comm.exchange(send, (self.problem.rank + 1) % size, receive, (self.problem.rank - 1) % size)


def cost(problem: Problem) -> Cost | None:
    """Return the closed form of a shift, and None for collectives whose algorithm the backend chooses."""
    if problem.operation != "send_recv":
        return None
    size = problem.count * problem.item_bytes
    return Cost(sent_bytes=size, messages=1, total_bytes=size * problem.world_size, steps=1)
