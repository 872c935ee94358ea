"""PyTorch's own data parallelism on the harness's process group, for techniques that stand for the library.

Techniques may not import ``torch.distributed``. What a library does with the group goes through ``Comm`` by the places
that it has for that: calls are counted, and what is handed to them; what travels, the kernel counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.families.training.api.own import layers_of
from paceline.families.training.api.replica import Comm
from paceline.worker.communication.transport import TorchTransport
from paceline.worker.ranks.session import UnsupportedError

MEBIBYTE = 1 << 20


def distributed_data_parallel(model: nn.Module, comm: Comm, *, bucket_bytes: int) -> nn.Module:
    """Wrap a model in PyTorch's DistributedDataParallel, whose buckets are averaged through the communicator.

    Gradients are views of the buckets. The hook does what the library's own does: divide, start an all-reduce, and let
    the reducer wait for the future when backward has ended.

    Args:
        model: Equal weights on all ranks.
        comm: The communicator.
        bucket_bytes: Largest bucket; the library fills buckets in the reverse order of parameters.

    Raises:
        UnsupportedError: The ranks are threads, for which the library has no group.
    """
    transport = comm._transport
    if not isinstance(transport, TorchTransport):
        raise UnsupportedError("PyTorch's DistributedDataParallel needs a process group")
    wrapped = DistributedDataParallel(
        model,
        process_group=transport.group,
        bucket_cap_mb=bucket_bytes / MEBIBYTE,
        gradient_as_bucket_view=True,
        # No broadcast of buffers in forward: they are constant tables here, and its bytes would be uncounted.
        broadcast_buffers=False,
    )
    # The hook replaces the reducer's own all-reduce, the only call of a step that moves bytes.
    wrapped.register_comm_hook(comm, _average)
    return wrapped


def _average(comm, bucket):  # type: ignore[no-untyped-def]  # see below
    """Start the average of a bucket; the library compares annotations with its own classes, which strings are not."""
    # Divided before the sum, as the library's own hook does against overflow in narrow types.
    buffer = bucket.buffer().div_(comm.world_size)
    return comm.backend.future_all_reduce(buffer)


def fully_sharded(model: nn.Module, comm: Comm, *, reshard: bool) -> None:
    """Shard a model's layers, then the rest, with PyTorch's ``fully_shard`` over all ranks.

    Its collectives are those of the library, which the communicator counts.

    Args:
        model: Equal weights on all ranks; its parameters become distributed tensors.
        comm: The communicator whose group is used.
        reshard: Free gathered parameters after forward and gather them again for backward.

    Raises:
        UnsupportedError: The ranks are threads, for which the library has no group; or a parameter has no axis.
    """
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415 - slow to import, for one technique
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    transport = comm._transport
    if not isinstance(transport, TorchTransport):
        raise UnsupportedError("PyTorch's fully_shard needs a process group")
    scalars = [name.removeprefix("inner.") for name, p in model.named_parameters() if not p.dim()]
    if scalars:
        raise UnsupportedError(
            f"PyTorch's fully_shard takes no scalar parameter such as {scalars[0]}: give it an axis"
        )
    kind = next(model.parameters()).device.type
    mesh = DeviceMesh.from_group(transport.group, kind)
    # Layers first: the root is left with what no layer has, the embedding and the last norm.
    for part in (*layers_of(model), model):
        # reshard is passed to the root as well: by default the library keeps it whole until backward.
        sharded: Any = fully_shard(part, mesh=mesh, reshard_after_forward=reshard)
        # Otherwise collectives would bypass Comm: no count, no trace, no name in a hang report.
        sharded.set_custom_all_gather(_AllGather(comm))
        sharded.set_custom_reduce_scatter(_ReduceScatter(comm))


class _Counted:
    """A collective of the library's, called through the communicator."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return a buffer, as the library makes them."""
        return torch.empty(*size, dtype=dtype, device=device)


class _AllGather(_Counted):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> object:
        return self.comm.backend._call(
            "all_gather",
            input_tensor,
            lambda: dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op),
        )


class _ReduceScatter(_Counted):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> object:
        return self.comm.backend._call(
            "reduce_scatter",
            input_tensor,
            lambda: dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group, async_op),
        )


def local_part(tensor: Tensor) -> Tensor:
    """Return the share of a distributed tensor that lies here; another tensor as it is."""
    # By attribute: importing DTensor takes long, and plain tensors come through here as well.
    found = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    assert isinstance(found, Tensor)
    return found


def whole(tensor: Tensor) -> Tensor:
    """Return a distributed tensor in whole, in its own shape: a collective, so call it on all ranks."""
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    assert isinstance(found, Tensor)
    return found
