"""PyTorch's own data parallelism on the harness's process group, for techniques that stand for the library.

Techniques may not import ``torch.distributed``; what the library does with the group is counted by ``Comm`` as calls,
and its bytes by the kernel.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.families.training.replica import Comm
from paceline.worker.session import UnsupportedError
from paceline.worker.transport import TorchTransport

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
        broadcast_buffers=False,
    )
    wrapped.register_comm_hook(comm, _average)
    return wrapped


def _average(comm, bucket):  # type: ignore[no-untyped-def]  # see below
    """Start the average of a bucket; the library compares annotations with its own classes, which strings are not."""
    buffer = bucket.buffer().div_(comm.world_size)
    return comm.backend.future_all_reduce(buffer)


def fully_sharded(model: nn.Module, comm: Comm, *, reshard: bool) -> None:
    """Shard a model's layers, then the rest, with PyTorch's ``fully_shard`` over all ranks.

    Args:
        model: Equal weights on all ranks; its parameters become distributed tensors.
        comm: The communicator whose group is used.
        reshard: Free gathered parameters after forward and gather them again for backward.

    Raises:
        UnsupportedError: The ranks are threads, for which the library has no group.
    """
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415 - slow to import, for one technique
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    transport = comm._transport
    if not isinstance(transport, TorchTransport):
        raise UnsupportedError("PyTorch's fully_shard needs a process group")
    kind = next(model.parameters()).device.type
    mesh = DeviceMesh.from_group(transport.group, kind)
    for layer in model.get_submodule("layers").children():
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)


def local_part(tensor: Tensor) -> Tensor:
    """Return the share of a distributed tensor that lies here; another tensor as it is."""
    found = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    assert isinstance(found, Tensor)
    return found


def whole(tensor: Tensor) -> Tensor:
    """Gather a distributed tensor."""
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    assert isinstance(found, Tensor)
    return found
