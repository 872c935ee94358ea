"""Broadcast as ranks run it: ``run(buffer [count])``, in place; only the root's content counts."""

from __future__ import annotations

from functools import partial

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Expected, InPlace, Instance
from paceline.families.collectives.ops.broadcast.spec import OPERATION


class Broadcast(InPlace):
    """The operation ``broadcast``."""

    spec = OPERATION

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one input a rank; the result is the root's."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        return Instance(arguments=(inputs[problem.rank],), expected=(Expected(value=inputs[problem.root]),))

    def least_sent(self, problem: Problem) -> int:
        """Return S: the root's buffer must leave it once."""
        return problem.count


run_block = partial(measure_block, how=Measurement(operation=Broadcast()))
"""Measure a block."""
