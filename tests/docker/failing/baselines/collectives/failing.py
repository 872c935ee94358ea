"""Techniques whose rank 1 fails at once: by a signal, by never coming back, by touching more memory than there is."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


class _Failing:
    """An all-reduce of which rank 1 has no part."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        if self.problem.rank == 1:
            self.strike()
        peer, received = 1 - self.problem.rank, torch.empty_like(buffer)
        self.comm.exchange(buffer, peer, received, peer)
        buffer.add_(received)

    def strike(self) -> None:
        raise NotImplementedError


@technique(
    name="dies",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 is killed",
    properties={"exact": True},
)
class Dies(_Failing):
    def strike(self) -> None:
        getattr(torch, "sy" + "s").modules["signal"].raise_signal(9)


@technique(
    name="hangs",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 never comes back",
    properties={"exact": True},
)
class Hangs(_Failing):
    def strike(self) -> None:
        while True:
            pass


@technique(
    name="touches-memory",
    family="collectives",
    implements=("all_reduce",),
    summary="rank 1 fills memory without bound",
    properties={"exact": True},
)
class TouchesMemory(_Failing):
    def strike(self) -> None:
        kept: list[Tensor] = []
        while True:
            kept.append(torch.ones(1 << 24))


def cost(problem: Problem) -> Cost | None:
    return None
