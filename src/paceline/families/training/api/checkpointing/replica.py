"""The contract of techniques that checkpoint: a rank's state, when it may be read, and when it has to be on disk.

Ranks share the sequences of a step and the optimiser's state (the layout of ZeRO's first stage), so that a rank's part
of a checkpoint is its share of weights and moments. The family trains; around a step it calls::

    … exchange_gradients → before_update → update → exchange_parameters → save (when a checkpoint is due)

Between ``save`` and the next ``before_update`` nothing changes ``live_state``: forward and backward write gradients
only. All that a technique does in these calls is time for which training waits; work of ``storage``'s threads is not.
"""

from __future__ import annotations

from concurrent.futures import Future

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.exchange import ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.storage import Storage

__all__ = ["CheckpointingReplica", "Comm", "Cost", "Future", "Storage", "Task", "training_cost"]


class CheckpointingReplica(FlatReplica):
    """A rank of data-parallel training that owns a share of weights and optimiser state; techniques save it."""

    def __init__(self, task: Task, comm: Comm) -> None:
        # Before super().__init__, which makes the optimiser over this rank's share.
        self.bounds = chunk_bounds(task.num_parameters, task.world_size)
        super().__init__(task, comm)
        assert isinstance(task.storage, Storage)
        self.storage = task.storage
        self.members = range(task.world_size)
        self.values = [self.flat.values[a:b] for a, b in self.bounds]
        self.gradients = [self.flat.gradients[a:b] for a, b in self.bounds]
        longest = max(b - a for a, b in self.bounds)
        self.scratch = torch.empty(2 * longest if task.world_size > 1 else 0, device=task.device)

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over this rank's share, with its moments made: buffers need their sizes."""
        start, stop = self.bounds[self.task.rank]
        self.share = nn.Parameter(self.flat.values[start:stop])
        self.share.grad = self.flat.gradients[start:stop]
        optimizer = self.task.optimizer([self.share])
        if isinstance(optimizer, AdamW):
            # Adam makes moments in its first step; host buffers of the right size are allocated before it.
            optimizer.state[self.share] = {
                "step": torch.zeros((), device=self.task.device),
                "exp_avg": torch.zeros_like(self.share.data),
                "exp_avg_sq": torch.zeros_like(self.share.data),
            }
        return optimizer

    def exchange_gradients(self, step: int) -> None:
        """Leave the mean gradient of this rank's share in it."""
        rings.finish(
            rings.reduce_scatter(self.comm, self.gradients, self.members, self.comm.rank, self.scratch)
        )
        self.gradients[self.comm.rank].div_(self.comm.world_size)

    def exchange_parameters(self, step: int) -> None:
        """Gather all shares."""
        self._gather()

    def _gather(self) -> None:
        rings.finish(rings.all_gather(self.comm, self.values, self.members, self.comm.rank))

    # What techniques change

    def save(self, step: int) -> None:
        """Begin to save the state after ``step`` steps; return as soon as training may go on."""
        raise NotImplementedError

    def before_update(self) -> None:
        """Wait until nothing reads the state any more, which is about to change."""

    def completed(self) -> int | None:
        """Return the last step of which this rank's part is on disk for good; None before the first."""
        raise NotImplementedError

    def drain(self) -> None:
        """Wait until everything that was begun is on disk."""

    def restore(self, step: int) -> None:
        """Take up a complete checkpoint, on a replica that was just made."""
        self.take_up(self.storage.read(step))

    # What they build on

    def live_state(self) -> dict[str, Tensor]:
        """Return this rank's part of the state by name, without copying it."""
        # Live tensors: a technique that copies late must do so before before_update returns.
        return {"weights": self.share.data} | dict(self.optimizer.state[self.share])

    def take_up(self, state: dict[str, Tensor]) -> None:
        """Copy a rank's part into place, and gather the weights of all."""
        for name, own in self.live_state().items():
            own.copy_(state[name])
        self._gather()


def training_cost(task: Task) -> Cost:
    """Return what training sends, 2·(n − 1)/n · 4P bytes a step; checkpoints send nothing."""
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)
