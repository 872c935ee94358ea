"""The store through which the ranks of a group find each other, in a process that is forked like a rank.

The launcher so never imports PyTorch, which would cost it more than all else that it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

from paceline.base.errors import InfrastructureError, PacelineError
from paceline.worker.network import namespace
from paceline.worker.processes import process

ENDS_S = 5.0
"""How long its process may take to end before it is killed."""


@contextmanager
def held(
    context: ForkServerContext, host: str, port: int, *, is_head: bool, limit_s: float, own_network: bool
) -> Iterator[int]:
    """Hold a store while the ranks of a group run.

    Args:
        context: Of the fork server.
        host: Where the store is.
        port: Of the store; 0: any.
        is_head: Whether the store is here; otherwise that of another node is waited for.
        limit_s: How long it is waited for.
        own_network: Whether this process is in a network namespace that the fork server is not in.

    Yields:
        The store's port.

    Raises:
        InfrastructureError: There is none.
    """
    ours, theirs = context.Pipe()
    network = f"/proc/{os.getpid()}/ns/net" if own_network else None
    holder = context.Process(
        target=_hold, args=(theirs, network, host, port, is_head, limit_s), name="group-store"
    )
    holder.start()
    theirs.close()
    try:
        try:
            bound, problem = ours.recv()
        except EOFError:
            bound, problem = 0, "the process that holds it was killed"
        if problem:
            raise InfrastructureError(f"the ranks found no rendezvous at {host}: {problem}")
        yield bound
    finally:
        ours.close()
        holder.join(ENDS_S)
        if holder.exitcode is None:
            holder.kill()
            holder.join()
        holder.close()


def _hold(
    launcher: Connection, network: str | None, host: str, port: int, is_head: bool, limit_s: float
) -> None:
    """Be the process: tell the store's port, or why there is none, and stay until the launcher hangs up."""
    from torch._C._distributed_c10d import TCPStore  # noqa: PLC0415 - the fork server has imported it

    process.let_fork_server_end()
    process.die_with_parent()
    process.set_name("paceline:store")
    try:
        if network:
            namespace.enter(network)
        store = TCPStore(
            host, port, is_master=is_head, wait_for_workers=False, timeout=timedelta(seconds=limit_s)
        )
    except (RuntimeError, PacelineError) as error:
        launcher.send((0, str(error)))
        return
    launcher.send((store.port, None))
    with suppress(EOFError):  # the launcher hangs up when the group has ended, or by dying
        launcher.recv()
