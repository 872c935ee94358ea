"""Bytes that the kernel counted on a network interface of the caller's network namespace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_TABLE = Path("/proc/self/net/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceCounters:
    """Totals since the interface came up, link-layer headers included."""

    rx_bytes: int
    rx_packets: int
    tx_bytes: int
    tx_packets: int


def read_interface(name: str) -> InterfaceCounters:
    """Read one interface's counters.

    Raises:
        KeyError: The namespace has no such interface.
    """
    for line in _TABLE.read_text().splitlines()[2:]:
        label, _, rest = line.partition(":")
        if label.strip() == name:
            fields = [int(f) for f in rest.split()]
            return InterfaceCounters(
                rx_bytes=fields[0], rx_packets=fields[1], tx_bytes=fields[8], tx_packets=fields[9]
            )
    raise KeyError(name)
