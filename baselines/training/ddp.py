"""PyTorch's DistributedDataParallel: gradients in buckets, averaged while backward goes on.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (VLDB 2020), sections 3.2 and 4.2.

Algorithm:
1. Parameters are assigned to buckets of limited size in reverse order, about the order in which gradients get ready.
2. A hook on each parameter counts down its bucket; a full bucket's all-reduce starts at once.
3. Backward goes on meanwhile; at its end the reducer waits for all buckets, and gradients are the averages.

Cost of a step: 4P bytes are handed to the backend's all-reduce, in as many calls as there are buckets; what travels for
them is the backend's (Gloo: 2·(n − 1)/n · 4P a rank). Memory: the buckets, of which gradients are views.
Limits: the library lays its buckets out anew after the first step, so that a run taken up from a checkpoint adds in
another order and ends with slightly other weights. What travels, the kernel alone knows, and the library's buckets lie
outside the count of scratch memory.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.api.replica import Comm, Cost, Replica, Task
from paceline.families.training.api.torch_parallel import distributed_data_parallel


@technique(
    name="ddp",
    family="training",
    implements=("data_parallel", "fine_tune"),
    summary="PyTorch's own: bucketed gradients, averaged during backward",
    paper="pytorch-ddp",
    properties={"exact": True, "replicas": "identical", "bitwise": False},
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 3.2 and 4.2 by the header, not read for this card",
            "code": "github.com/pytorch/pytorch: torch/nn/parallel/distributed.py, as it is installed",
        },
        "deviations": (
            (
                "It is the library itself; only the all-reduce goes through the communicator, so that calls are "
                "counted and a hang names its operation."
            ),
            "Buckets are smaller than the library's, since models are.",
        ),
        "constants": {
            "bucket_bytes": {
                "here": 1048576,
                "authors": "25 MiB, and 1 MiB for the first, distributed.py",
                "official": 26214400,
                "source": "github.com/pytorch/pytorch: torch/nn/parallel/distributed.py",
                "differs": "buckets are smaller, since models are",
            },
        },
        "checked_by": (
            "tests/distributed/test_backend_calls.py::test_closed_forms_hold",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class Ddp(Replica):
    """Wrap the model; the library does the rest."""

    own_gradients = False

    def __init__(self, task: Task, comm: Comm, *, bucket_bytes: int = 1048576) -> None:
        # 1 MiB, where the library has 25: small models would fit into one bucket and overlap nothing.
        self.wrapped = distributed_data_parallel(task.model, comm, bucket_bytes=bucket_bytes)
        super().__init__(task, comm)

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Run forward and backward; gradients are averages when this returns."""
        # Zeroed in place, so gradients stay views of the reducer's buckets and backward needs no copy into them.
        self.optimizer.zero_grad(set_to_none=False)
        return loss_and_gradients(self.wrapped, sequences_BS)


def cost(task: Task) -> Cost:
    """Return what a rank holds, the whole state, and hands over; what is sent, the backend decides."""
    return Cost(state_bytes=task.whole_state_bytes, backend_bytes=4 * task.num_parameters * task.steps)
