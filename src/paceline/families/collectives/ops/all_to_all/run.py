"""All-to-all as ranks run it: ``run(send [count], receive [count])``."""

from __future__ import annotations

from functools import partial

import torch

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Expected, Instance, TimedOperation
from paceline.families.collectives.ops.all_to_all.spec import OPERATION


class AllToAll(TimedOperation):
    """The operation ``all_to_all``."""

    spec = OPERATION
    buffers = ("send", "receive")
    roles = ("in", "out")

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (count,) twice."""
        return ((problem.count,), (problem.count,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one full buffer a rank; rank r ends with the r-th share of each."""
        size = problem.world_size
        shares = [
            x.view(size, -1) for x in everyones_inputs(problem, problem.count, payload, seed, magnitude)
        ]
        mine = torch.cat([s[problem.rank] for s in shares])
        other = torch.cat([s[(problem.rank + 1) % size] for s in shares])
        return Instance(
            arguments=(shares[problem.rank].reshape(-1), None),
            expected=(None, Expected(value=mine)),
            wrong=(
                ("swapped-ranks", (None, other)),
                ("identity", (None, shares[problem.rank].reshape(-1))),
            ),
        )

    def least_sent(self, problem: Problem) -> int:
        """Return all shares but one: only a rank's own stays."""
        return problem.share * (problem.world_size - 1)


run_block = partial(measure_block, how=Measurement(operation=AllToAll()))
"""Measure a block."""
