"""The harness's own messages between the ranks of a group: tensors on a group that techniques cannot reach."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import torch

from paceline.worker.communication.control import Control
from paceline.worker.communication.transport import Transport

_monotonic_ns = time.monotonic_ns
_sched_yield = os.sched_yield

MIN_START_MARGIN_NS = 60_000
MAX_START_MARGIN_NS = 200_000


def control_over(transport: Transport) -> Control:
    """Return the messages of a group's ranks, or of a rank that is alone in it."""
    return Control() if transport.world_size == 1 else GroupControl(transport)


class GroupControl(Control):
    """The messages of two ranks or more."""

    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport
        self.rank = transport.rank
        self.world_size = transport.world_size
        self._margin_ns = 150_000

    def gather(self, rows: Sequence[Sequence[float]]) -> list[list[list[float]]]:
        """By one all-gather of float64 values."""
        flat = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
        if flat.numel() == 0:
            return [[list(row) for row in rows] for _ in range(self.world_size)]
        output = torch.empty(self.world_size * flat.numel(), dtype=torch.float64)
        self._transport.all_gather(output, flat)
        everyone: list[list[list[float]]] = []
        for values in output.view(self.world_size, -1).tolist():
            iterator = iter(values)
            everyone.append([[next(iterator) for _ in row] for row in rows])
        return everyone

    def gather_text(self, text: str) -> list[str]:
        """By one all-gather of bytes, padded to the longest."""
        data = text.encode()
        length = max(int(rows[0][0]) for rows in self.gather([[float(len(data))]]))
        padded = torch.zeros(8 + length, dtype=torch.uint8)
        padded[:8] = torch.tensor(list(len(data).to_bytes(8, "little")), dtype=torch.uint8)
        if data:
            padded[8 : 8 + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        output = torch.empty(self.world_size * padded.numel(), dtype=torch.uint8)
        self._transport.all_gather(output, padded)
        texts: list[str] = []
        for row in output.view(self.world_size, -1):
            count = int.from_bytes(bytes(row[:8].tolist()), "little")
            texts.append(bytes(row[8 : 8 + count].tolist()).decode())
        return texts

    def agree(self, number: int) -> int:
        """By a broadcast from rank 0."""
        tensor = torch.tensor([number], dtype=torch.int64)
        self._transport.broadcast(tensor, 0)
        return int(tensor.item())

    def sum_in_place(self, tensor: torch.Tensor) -> None:
        """By an all-reduce."""
        self._transport.all_reduce(tensor)

    def barrier(self) -> None:
        """By a barrier of the group."""
        self._transport.barrier()

    def synchronise_clocks(self, *, rounds: int = 32) -> None:
        """By ping-pongs between rank 0 and each other rank in turn."""
        stamp = torch.zeros(1, dtype=torch.int64)
        for other in range(1, self.world_size):
            best = None
            for _ in range(rounds):
                if self.rank == 0:
                    begin = _monotonic_ns()
                    self._message(stamp, other, send=True)
                    self._message(stamp, other, send=False)
                    round_trip = _monotonic_ns() - begin
                    middle = begin + round_trip // 2
                    if best is None or round_trip < best[0]:
                        best = (round_trip, middle - int(stamp.item()))
                elif self.rank == other:
                    self._message(stamp, 0, send=False)
                    stamp[0] = _monotonic_ns()
                    self._message(stamp, 0, send=True)
            if self.rank == 0:
                assert best is not None
                result = torch.tensor([best[1], best[0] // 2 + 1], dtype=torch.int64)
                self._message(result, other, send=True)
            elif self.rank == other:
                result = torch.zeros(2, dtype=torch.int64)
                self._message(result, 0, send=False)
                self.clock_offset_ns, self.clock_error_ns = (int(v) for v in result.tolist())

    def start_together(self, carrier: Transport | None = None) -> int:
        """By a broadcast of the instant, for which every rank spins."""
        tensor = torch.tensor([_monotonic_ns() + self._margin_ns], dtype=torch.int64)
        (carrier or self._transport).broadcast(tensor, 0)
        target = int(tensor.item()) - self.clock_offset_ns
        crowded = 2 * self.world_size > len(os.sched_getaffinity(0))
        while (now := _monotonic_ns()) < target:
            if crowded:
                _sched_yield()
        return now - target

    def adapt_margin(self, late_ns: float) -> None:
        """By half more after a late start of any rank, by 2 % less otherwise."""
        grown = self._margin_ns * 1.5 if late_ns > 20_000 else self._margin_ns * 0.98
        self._margin_ns = int(min(max(grown, MIN_START_MARGIN_NS), MAX_START_MARGIN_NS))

    def _message(self, tensor: torch.Tensor, peer: int, *, send: bool) -> None:
        waits = self._transport.post([(tensor, peer)] if send else [], [] if send else [(tensor, peer)])
        for work in waits:
            work.wait()
