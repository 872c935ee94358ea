"""``toy`` as ranks run it: ``run(buffer [count])``, in place."""

from __future__ import annotations

from functools import partial

from paceline.families.collectives.ops.toy.spec import OPERATION

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Expected, InPlace, Instance


class Toy(InPlace):
    """The operation ``toy``."""

    spec = OPERATION

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one input a rank; the result is the input of the rank before."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        before = inputs[(problem.rank - 1) % problem.world_size]
        return Instance(arguments=(inputs[problem.rank],), expected=(Expected(value=before),))

    def least_sent(self, problem: Problem) -> int:
        """Return S: every buffer must leave its rank once."""
        return problem.count


run_block = partial(measure_block, how=Measurement(operation=Toy()))
"""Measure a block."""
