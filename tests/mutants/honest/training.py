"""Honest data parallelism that looks unusual: gradients that leave during backward, wider means, other layouts."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, FlatReplica, Replica, Task


@technique(
    name="means-in-float64",
    family="training",
    implements=("data_parallel",),
    summary="gathers all gradients and takes their mean in float64",
    properties={"exact": True, "replicas": "identical"},
)
class MeansInFloat64(FlatReplica):
    """Rounds once."""

    def exchange_gradients(self, step: int) -> None:
        """Gather, and take the mean."""
        own = self.flat.gradients
        rows = own.new_empty(self.comm.world_size, own.numel())
        self.comm.backend.all_gather(rows.view(-1), own)
        own.copy_(rows.to(torch.float64).mean(0))


@technique(
    name="largest-first",
    family="training",
    implements=("data_parallel",),
    summary="begins the sums of all tensors at once, the largest first, and divides by one call for all",
    properties={"exact": True, "replicas": "identical"},
)
class LargestFirst(Replica):
    """Many sums are under way at once."""

    def exchange_gradients(self, step: int) -> None:
        """Sum and divide."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        ordered = sorted(range(len(grads)), key=lambda i: (-grads[i].numel(), i))
        begun = [self.comm.backend.start_all_reduce(grads[i]) for i in ordered]
        for transfer in begun:
            transfer.wait()
        torch._foreach_div_(grads, float(self.comm.world_size))


@technique(
    name="shares-of-the-mean",
    family="training",
    implements=("data_parallel",),
    summary="each rank takes the mean of a share, padded to equal lengths, and all gather the shares",
    properties={"exact": True, "replicas": "identical"},
)
class SharesOfTheMean(FlatReplica):
    """Makes its buffers in the first step."""

    padded: Tensor | None = None

    def exchange_gradients(self, step: int) -> None:
        """Scatter sums, divide, gather."""
        own, size = self.flat.gradients, self.comm.world_size
        each = -(-own.numel() // size)
        if self.padded is None:
            self.padded = own.new_zeros(each * size)
            self.share = own.new_empty(each)
        self.padded[: own.numel()] = own
        self.comm.backend.reduce_scatter(self.share, self.padded)
        self.share /= size
        self.comm.backend.all_gather(self.padded, self.share)
        own.copy_(self.padded[: own.numel()])


@technique(
    name="divides-before",
    family="training",
    implements=("data_parallel",),
    summary="divides before it sums, by a factor of two, so that nothing is rounded twice",
    properties={"exact": True, "replicas": "identical"},
)
class DividesBefore(FlatReplica):
    """Exact for two ranks, since a half loses no bit."""

    def exchange_gradients(self, step: int) -> None:
        """Scale, then sum."""
        self.flat.gradients.mul_(1.0 / self.comm.world_size)
        self.comm.backend.all_reduce(self.flat.gradients)


@torch.jit.script
def _mean(total: Tensor, size: int) -> Tensor:
    return total / size


@technique(
    name="compiled-mean",
    family="training",
    implements=("data_parallel",),
    summary="divides by a function that TorchScript compiles in its first steps",
    properties={"exact": True, "replicas": "identical"},
)
class CompiledMean(FlatReplica):
    """Its first steps take longer than the others."""

    def exchange_gradients(self, step: int) -> None:
        """Sum, then divide compiled."""
        self.comm.backend.all_reduce(self.flat.gradients)
        self.flat.gradients.copy_(_mean(self.flat.gradients, self.comm.world_size))


def cost(task: Task) -> Cost | None:
    """State no closed form."""
    return None
