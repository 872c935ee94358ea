"""What the kernel counts on a rank's own interfaces while it trains, less what the harness does meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from paceline.families.training.core.proofs.sandbox import Sandbox
from paceline.worker.network.namespace import InterfaceCounters, read_counters, sent_again_bytes
from paceline.worker.ranks.session import Session

HEADER_BYTES: Final = 66
"""Of a packet, as interfaces count it: Ethernet 14, IPv4 20, TCP 20, its timestamps 12; an offload packet has one."""
NOTHING = InterfaceCounters(tx_bytes=0, tx_packets=0, rx_bytes=0, rx_packets=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What one rank's interfaces have sent in a run."""

    data_bytes: float | None = None
    """Of the interface for data; None where others share it, or there is none."""
    data_packets: float = 0.0
    around_bytes: float = 0.0
    """Of the interface for the harness's messages."""
    sent_again_bytes: float = 0.0
    """What both may have sent a second time."""

    @property
    def payload_bytes(self) -> float | None:
        """Bytes for data without the packets' headers."""
        return None if self.data_bytes is None else self.data_bytes - HEADER_BYTES * self.data_packets


def tells_techniques_apart(session: Session) -> bool:
    """Whether a rank's interface for data carries every byte of a technique's messages and nothing else.

    Accelerators' carriers go other ways; on one interface for all, the harness's messages are among the rest, and what
    travels while weights are copied is left out with them.
    """
    own = session.interface is not None and not session.interface_shared
    return own and session.control_interface is not None and session.device.torch_type == "cpu"


class KernelCounts:
    """Reads the kernel's counters around a rank's training.

    Args:
        sandbox: The technique. A library gathers weights over its own group when they are copied.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._begun = (NOTHING, NOTHING)
        self._again = 0
        self._left_out = [0, 0, 0]

    def begin(self) -> None:
        """Count from now on."""
        self._begun, self._left_out = self._read(), [0, 0, 0]
        self._again = sent_again_bytes()

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave out what happens inside, which begins and ends when nobody is on the way."""
        sandbox, control = self._sandbox, self._sandbox.session.control
        # Two barriers around each reading: nobody sends until all have read, so no byte is counted on one side only.
        control.barrier()
        data, around = self._read()
        control.barrier()
        yield
        control.barrier()
        data_after, around_after = self._read()
        control.barrier()
        # A library gathers weights over its own group, on the interface for data; others copy what lies on the rank.
        if sandbox.library or sandbox.session.control_interface is None:
            self._left_out[0] += data_after.tx_bytes - data.tx_bytes
            self._left_out[1] += data_after.tx_packets - data.tx_packets
        # The harness's own gathering of weights is in its messages, which judging compares with a fixed allowance.
        self._left_out[2] += around_after.tx_bytes - around.tx_bytes

    def end(self) -> Carried:
        """Return what was sent since the beginning."""
        data, around = self._read()
        since, since_around = self._begun
        around_bytes = float(around.tx_bytes - since_around.tx_bytes - self._left_out[2])
        # Shared with other ranks, the counter says nothing of this one.
        if not self._own(self._sandbox.session.interface):
            return Carried(around_bytes=around_bytes)
        return Carried(
            data_bytes=float(data.tx_bytes - since.tx_bytes - self._left_out[0]),
            data_packets=float(data.tx_packets - since.tx_packets - self._left_out[1]),
            around_bytes=around_bytes,
            sent_again_bytes=float(sent_again_bytes() - self._again),
        )

    def _read(self) -> tuple[InterfaceCounters, InterfaceCounters]:
        session = self._sandbox.session
        data, around = session.interface, session.control_interface
        return self._of(data), self._of(around)

    def _of(self, interface: str | None) -> InterfaceCounters:
        """Return the counters of one of this rank's own interfaces; nothing where others share it, or there is none."""
        return read_counters(interface) if interface is not None and self._own(interface) else NOTHING

    def _own(self, interface: str | None) -> bool:
        return interface is not None and not self._sandbox.session.interface_shared
