"""All-gather as ranks run it: ``run(send [share], receive [count])``."""

from __future__ import annotations

from functools import partial

import torch

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Expected, Instance, TimedOperation
from paceline.families.collectives.ops.all_gather.spec import OPERATION


class AllGather(TimedOperation):
    """The operation ``all_gather``."""

    spec = OPERATION
    buffers = ("send", "receive")
    roles = ("in", "out")

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (share,) and (count,)."""
        return ((problem.share,), (problem.count,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one share a rank."""
        inputs = everyones_inputs(problem, problem.share, payload, seed, magnitude)
        swapped = torch.cat(inputs[1:] + inputs[:1])
        return Instance(
            arguments=(inputs[problem.rank], None),
            expected=(None, Expected(value=torch.cat(inputs))),
            wrong=(("swapped-ranks", (None, swapped)),),
        )

    def least_sent(self, problem: Problem) -> int:
        """Return one share: a rank's own must leave it once."""
        return problem.share


run_block = partial(measure_block, how=Measurement(operation=AllGather()))
"""Measure a block."""
