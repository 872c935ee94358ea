"""The network of one process group whose ranks each live in a network namespace of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from paceline.worker.network.links import CONTROL_INTERFACE, DATA_INTERFACE, Link, Network
from paceline.worker.network.namespace import enter

_OWN = "/proc/self/ns/net"


@contextmanager
def shaped_network(
    ranks: int, link: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Build the namespaces, put the caller into the switch's one, and undo both at the end.

    The caller hosts the rendezvous store; in the switch's namespace every rank reaches it over the unshaped control
    network, so the rendezvous neither pays nor loads the shaped links.

    Args:
        ranks: Ranks of the process group.
        link: ``name``, ``rate_bytes_per_s`` (None: unshaped) and ``delay_s`` (one way).
        environment: Variables for every rank.

    Yields:
        ``host``, the address of the store, and ``environment``, the ranks' variables with their namespaces.

    Raises:
        InfrastructureError: The namespaces could not be built, or the emulation did not hold until the end.
    """
    shape = Link(name=link["name"], rate_bytes_per_s=link["rate_bytes_per_s"], delay_s=link["delay_s"])
    with Network(num_ranks=ranks, link=shape) as network:
        variables = {
            **environment,
            "PACELINE_NAMESPACES": ",".join(network.namespace(rank) for rank in range(ranks)),
            "PACELINE_DATA_INTERFACE": DATA_INTERFACE,
            "PACELINE_CONTROL_INTERFACE": CONTROL_INTERFACE,
        }
        with _inside(network.switch_namespace):
            yield {"host": network.switch_control_address, "environment": variables}
        network.check()


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        try:
            yield
        finally:
            enter(f"/proc/self/fd/{home}")
    finally:
        os.close(home)
