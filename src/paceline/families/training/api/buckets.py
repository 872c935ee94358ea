"""Buckets of whole parameters, in the order in which backward completes their gradients, about."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from paceline.families.collectives.api.problem import chunk_bounds


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Some parameters as views of one vector, cut into a share for each rank."""

    parameters: list[nn.Parameter]
    values: Tensor
    """(B,): writing to it changes the parameters."""
    bounds: list[tuple[int, int]]
    """(start, stop) of each rank's share."""
    missing: int = 0
    """Gradients that are not there yet."""
    chunks: list[Tensor] = field(default_factory=list)
    """The shares of ``values``, in rank order."""

    def take_gradients(self) -> Tensor:
        """Return the gradients as one vector and free those of the parameters."""
        found = []
        for parameter in self.parameters:
            assert parameter.grad is not None
            # Joined here, not accumulated in a held vector: outside backward gradients take no memory.
            found.append(parameter.grad.reshape(-1))
            parameter.grad = None
        return torch.cat(found)


def buckets(model: nn.Module, bucket_bytes: int, world_size: int) -> list[Bucket]:
    """Move a model's parameters into buckets."""
    return [make_bucket(group, world_size) for group in bucket_groups(model, bucket_bytes)]


def bucket_groups(model: nn.Module, bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Deal parameters out to buckets of at most ``bucket_bytes`` (or one tensor), the last parameters first.

    Li et al., "PyTorch Distributed" (VLDB 2020), section 3.2.

    Args:
        model: Its parameters are left as they are.
        bucket_bytes: In the parameters' own dtypes.
    """
    groups: list[list[nn.Parameter]] = [[]]
    filled = 0
    # Backward reaches the last parameters first: their bucket is complete while most is still to come.
    for parameter in reversed(list(model.parameters())):
        size = parameter.numel() * parameter.element_size()
        # A tensor longer than a bucket gets one of its own: a gradient is complete as a whole or not at all.
        if groups[-1] and filled + size > bucket_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(parameter)
        filled += size
    return groups


def make_bucket(parameters: list[nn.Parameter], world_size: int) -> Bucket:
    """Move parameters into one vector, (B,), of which they become views; all must have one dtype and device.

    Args:
        parameters: In the order in which they lie in the vector.
        world_size: Shares into which it is cut, of sizes that differ by one element at most.
    """
    with torch.no_grad():
        values = torch.cat([p.detach().reshape(-1) for p in parameters])
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        # The old storage goes with the old data: an all-gather into the bucket changes the model in place.
        parameter.data = values[start:stop].view(parameter.shape)
        start = stop
    bounds = chunk_bounds(values.numel(), world_size)
    return Bucket(
        parameters=parameters, values=values, bounds=bounds, chunks=[values[a:b] for a, b in bounds]
    )
