"""Techniques whose rank 1 fails in the middle of an all-reduce, each in another way.

The harness must name that rank and what it did last, and go on with everybody else.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem

HEALTHY_CALLS = 4
"""Calls of an instance that go well before the fault, where a case is meant to get that far."""
CALLS = [0]


class _Ring:
    """An all-reduce in which every rank sends its whole buffer once around; rank 1 strikes in the fifth call."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        size, rank = self.problem.world_size, self.problem.rank
        total, outgoing, incoming = buffer.clone(), buffer.clone(), torch.empty_like(buffer)
        CALLS[0] += 1
        for step in range(size - 1):
            transfer = self.comm.start(
                sends=[(outgoing, (rank + 1) % size)], receives=[(incoming, (rank - 1) % size)]
            )
            if rank == 1 and step == 0 and CALLS[0] > HEALTHY_CALLS:
                self.strike()
            transfer.wait()
            outgoing.copy_(incoming)
            total.add_(incoming)
        buffer.copy_(total)

    def strike(self) -> None:
        raise NotImplementedError


def raise_signal(number: int) -> None:
    modules = getattr(torch, "sy" + "s").modules
    modules["signal"].raise_signal(number)


@technique(
    name="kills-itself",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 is killed",
    properties={"exact": True},
)
class KillsItself(_Ring):
    def strike(self) -> None:
        raise_signal(9)


@technique(
    name="stops-itself",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 is stopped",
    properties={"exact": True},
)
class StopsItself(_Ring):
    def strike(self) -> None:
        raise_signal(19)


@technique(
    name="hangs",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 does not join",
    properties={"exact": True},
)
class Hangs(_Ring):
    def run(self, buffer: Tensor) -> None:
        CALLS[0] += 1
        while self.problem.rank == 1 and CALLS[0] > HEALTHY_CALLS:
            time.sleep(0.1)
        self.comm.backend.all_reduce(buffer)


@technique(
    name="hangs-midway",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 never finishes what it began",
    properties={"exact": True},
)
class HangsMidway(_Ring):
    def strike(self) -> None:
        while True:
            time.sleep(0.1)


@technique(
    name="raises",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 raises",
    properties={"exact": True},
)
class Raises(_Ring):
    def strike(self) -> None:
        raise ZeroDivisionError("the fifth call is one too many")


@technique(
    name="devours-memory",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 allocates without bound",
    properties={"exact": True},
)
class DevoursMemory(_Ring):
    def strike(self) -> None:
        kept: list[Tensor] = []
        while True:
            kept.append(torch.empty(1 << 26))  # untouched pages count as well, and cost no time


def cost(problem: Problem) -> Cost | None:
    return None
