"""What a rank does inside its network namespace: enter it, and read what its links carried."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paceline.base.errors import InfrastructureError, UserError

_CLONE_NEWNET: Final = 0x40000000


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceCounters:
    """What the kernel counted on one interface since the interface was created."""

    tx_bytes: int
    """Bytes sent, frame headers included; an offload packet has one header."""
    tx_packets: int
    """Packets sent; an offload packet of up to 64 KiB counts once."""
    rx_bytes: int
    """Bytes received, counted like those sent, before any emulated delay."""
    rx_packets: int
    """Packets received."""


def enter(path: str) -> None:
    """Move the calling thread, and the threads it starts later, into a network namespace.

    Call it first thing in a rank: sockets and threads that exist already stay where they are.

    Args:
        path: From ``Network.namespace`` or ``Network.switch_namespace``.

    Raises:
        InfrastructureError: The namespace is gone.
        UserError: The process may not enter it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        message = f"{path}: the process that created this network has ended"
        raise InfrastructureError(message) from None
    try:
        _set_namespace(descriptor)
    except PermissionError:
        raise UserError(
            "cannot enter a network namespace",
            where=path,
            expected="root (CAP_SYS_ADMIN)",
            fix="run as root, for example with sudo",
        ) from None
    finally:
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    if sys.version_info >= (3, 12):
        os.setns(descriptor, os.CLONE_NEWNET)
    else:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


HEADERS_SHARE = 0.1
"""Largest share of the payload that headers and acknowledgements take: 3 % at 1 MiB, more for small segments."""
HEADERS_MESSAGE_BYTES = 1024
"""The same for a message, whatever its size."""


def unaccounted(carried: float, counted: float, *, messages: float, fixed: float) -> str | None:
    """Say how many bytes the kernel carried that the communicator did not, or None when the two agree.

    Args:
        carried: Bytes on all ranks' interfaces, headers included.
        counted: Payload bytes that the communicator counted.
        messages: Messages whose headers are allowed for.
        fixed: Bytes that are allowed for besides.
    """
    if carried <= counted * (1 + HEADERS_SHARE) + messages * HEADERS_MESSAGE_BYTES + fixed:
        return None
    return f"the kernel carried {carried:.0f} bytes, the communicator {counted:.0f}"


def overstated(carried: float, counted: float) -> str | None:
    """Say how many bytes the communicator counted that the kernel did not carry, or None when there are none.

    What has arrived has passed its sender's interface, with headers around it, so that nothing is allowed for.

    Args:
        carried: Bytes on all ranks' interfaces, headers included.
        counted: Payload bytes that the communicator counted.
    """
    if counted <= carried:
        return None
    return f"the communicator counted {counted:.0f} bytes, the kernel carried {carried:.0f}"


SEGMENT_BYTES = 1514
"""Most bytes of a segment of TCP in a namespace, its frame's header included."""


def sent_again_bytes() -> int:
    """Return at most how many bytes TCP has sent again in the calling thread's namespace (RFC 4022, tcpRetransSegs).

    A host whose cores stand still for a while makes it send what had arrived; interfaces count such bytes, too.
    """
    lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")]) * SEGMENT_BYTES


def read_counters(interface: str) -> InterfaceCounters:
    """Read an interface's counters in the calling thread's namespace.

    Raises:
        UserError: No such interface there.
    """
    names = []
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            fields = [int(number) for number in numbers.split()]
            return InterfaceCounters(
                rx_bytes=fields[0],
                rx_packets=fields[1],
                tx_bytes=fields[8],
                tx_packets=fields[9],
            )
        names.append(name.strip())
    raise UserError(
        f"no interface '{interface}' in this network namespace",
        expected=f"one of: {', '.join(names)}",
        fix="call enter(network.namespace(rank)) before reading counters",
    )
