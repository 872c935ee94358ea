"""PyTorch's own data parallelism on the harness's process group, for techniques that stand for the library.

Techniques may not import ``torch.distributed``; what the library does with the group is counted by ``Comm`` as calls,
and its bytes by the kernel.
"""

from __future__ import annotations

from torch import nn
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


def _average(comm, bucket):  # type: ignore[no-untyped-def]
    """Start the average of a bucket; the library compares annotations with its own classes, which strings are not."""
    buffer = bucket.buffer().div_(comm.world_size)
    return comm.backend.future_all_reduce(buffer)
