"""The exchange of a strided block: its inputs, and what the blocks of the target must hold.

``api.strided`` says what ``run`` is given.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.strided import Layout, layout_of
from paceline.families.collectives.core.payloads import draw
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Expected, Instance, TimedOperation
from paceline.families.collectives.ops.strided_exchange.spec import OPERATION


def _mask(layout: Layout, device: torch.device) -> Tensor:
    position = torch.arange(layout.extent, device=device)
    inside = position % layout.plane_stride
    return (inside % layout.stride < layout.block) & (inside < layout.num_blocks * layout.stride)


class StridedExchange(TimedOperation):
    """The operation ``strided_exchange``."""

    spec = OPERATION
    buffers = ("source", "target")
    roles = ("in", "inout")

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (extent,) twice."""
        return ((layout_of(problem).extent,),) * 2

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw a source and an old target for every rank; the blocks of the target are replaced."""
        layout = layout_of(problem)
        size, rank = problem.world_size, problem.rank
        previous = (rank - 1) % size

        def values(of_rank: int, salt: int) -> Tensor:
            drawn = draw(
                payload,
                layout.extent,
                seed=seed + salt,
                rank=of_rank,
                world_size=size,
                dtype=problem.dtype,
            )
            return drawn.to(problem.device) * magnitude if magnitude != 1.0 else drawn.to(problem.device)

        mine, theirs, old = values(rank, 1), values(previous, 1), values(rank, 2)
        mask = _mask(layout, problem.device)
        return Instance(
            arguments=(mine, old),
            expected=(None, Expected(value=torch.where(mask, theirs, old))),
            wrong=(
                ("gaps-overwritten", (None, theirs)),
                ("wrong-direction", (None, torch.where(mask, values((rank + 1) % size, 1), old))),
            ),
        )


run_block = partial(measure_block, how=Measurement(operation=StridedExchange()))
"""Measure a block."""
