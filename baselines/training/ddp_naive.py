"""Synchronous data parallelism, one all-reduce for each parameter tensor after backward: no bucketing.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (VLDB 2020), section 3.2.1, calls
this the naive solution and names what is wrong with it: small messages, and no overlap with backward.

Algorithm: after backward, for each parameter in turn, the backend sums its gradient over ranks; divide by n.
Cost of a step: 4P bytes are handed to the backend's all-reduce, in as many calls as there are tensors; what travels for
them is the backend's, as with ``ddp``.
Differences: none. Limits: meant to be slow.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Replica, Task


@technique(
    name="ddp-naive",
    family="training",
    implements=("data_parallel",),
    summary="one all-reduce for each parameter after backward",
    properties={"exact": True, "replicas": "identical"},
)
class DdpNaive(Replica):
    """Average every gradient by itself."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Average the gradients, one tensor after the other."""
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            # Blocking, in the model's order on every rank: calls match up, and each pays the full latency.
            self.comm.backend.all_reduce(parameter.grad)
            parameter.grad.div_(self.comm.world_size)


def cost(task: Task) -> Cost:
    """Return what a rank holds, the whole state, and hands over; what is sent, the backend decides."""
    handed = 4 * task.num_parameters * task.steps
    return Cost(state_bytes=task.whole_state_bytes, scratch_bytes=0, backend_bytes=handed)
