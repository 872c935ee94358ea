"""Fully sharded data parallelism: PyTorch's ``fully_shard``, which keeps parameters, gradients and state in shares.

Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (VLDB 2023); the method is stage 3 of
ZeRO (Rajbhandari et al., SC 2020, section 5.3). This is the library's second version, on DTensor.

Algorithm (units: each layer, and the rest):
1. Before a unit's forward its shares are gathered, and freed afterwards.
2. Before its backward they are gathered again; afterwards its gradients are reduced to their owners, and freed.
3. Each rank updates its own shares.

Cost of a step: two all-gathers, to each of which a rank hands its 4P/n bytes, and a reduce-scatter, to which it hands
4P: 3/2 of an all-reduce with true rings. What the backend sends for them, only the kernel knows (Gloo's reduce-scatter
moves an all-reduce's bytes). With n = 1 there is no call. State: 16P/n in single precision with Adam. Memory: the
largest unit's parameters, whole, twice with prefetching.
Limits: what travels is the kernel's to count, and the library's buffers lie outside the count of scratch memory;
weights are gathered to be judged, which is left out of all counts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Replica, Task
from paceline.families.training.api.torch_parallel import fully_sharded, local_part, whole


@technique(
    name="fsdp",
    family="training",
    implements=("data_parallel",),
    summary="PyTorch's own: parameters, gradients and state in shares, gathered unit by unit",
    paper="pytorch-fsdp",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the method by the header, not read for this card",
            "code": (
                "github.com/pytorch/pytorch: torch/distributed/fsdp/_fully_shard/_fully_shard.py, as it is "
                "installed"
            ),
        },
        "deviations": (
            (
                "It is the library itself, in its second version; its collectives are called through the "
                "communicator, so that calls are counted and a hang names its operation."
            ),
        ),
        "constants": {
            "reshard": {
                "here": True,
                "authors": "True where the user says nothing (reshard_after_forward), but for the root",
            },
        },
        "checked_by": (
            "tests/distributed/test_backend_calls.py::test_a_library_that_shards_hands_over_shares_and_whole_gradients",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class Fsdp(Replica):
    """Shard the model; the library does the rest."""

    own_gradients = False

    def __init__(self, task: Task, comm: Comm, *, reshard: bool = True) -> None:
        # Before the optimiser is made: it must hold the shards that take the place of the parameters.
        fully_sharded(task.model, comm, reshard=reshard)
        super().__init__(task, comm)

    def weights(self) -> list[Tensor]:
        """Gather all parameters."""
        return [whole(p).detach() for p in self.model.parameters()]

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's shares, and the optimiser's state of them."""
        state = [
            {name: local_part(value).clone() for name, value in self.optimizer.state[p].items()}
            for p in self.model.parameters()
        ]
        return {"weights": [local_part(p).detach().clone() for p in self.model.parameters()], "state": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what ``state_dict`` returned, on the same number of ranks.

        The optimiser makes its state in a step on zero gradients with a rate of zero; then it is overwritten.
        """
        # The step makes moments as distributed tensors, laid out as the parameters; shares are copied in.
        self.set_rate(0.0)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        with torch.no_grad():
            for parameter, share, kept in zip(
                self.model.parameters(), state["weights"], state["state"], strict=True
            ):
                local_part(parameter).copy_(share)
                for name, value in kept.items():
                    local_part(self.optimizer.state[parameter][name]).copy_(value)


def cost(task: Task, *, reshard: bool) -> Cost:
    """Return what a rank holds, shares of whole rows, and hands over; what is sent, the backend decides."""
    # fully_shard cuts dimension 0 into ⌈rows/n⌉ rows a rank, and pads what it hands to collectives.
    owned = sum(-(-p.shape[0] // task.world_size) * p.shape[1:].numel() for p in task.model.parameters())
    # All-gathers take the own share, forward and (resharded) backward; the reduce-scatter takes all n.
    handed = 4 * owned * ((1 + reshard) + task.world_size) * task.steps
    return Cost(
        state_bytes=(8 + task.moment_bytes) * owned, backend_bytes=handed if task.world_size > 1 else None
    )
