"""Reduce as ranks run it: ``run(buffer [count])``, in place; defined on the root afterwards."""

from __future__ import annotations

from functools import partial

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs, exactly_representable
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import InPlace, Instance, sum_expected
from paceline.families.collectives.ops.reduce.spec import OPERATION


class Reduce(InPlace):
    """The operation ``reduce``."""

    spec = OPERATION

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one input a rank; the root's result is their sum."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        own = inputs[problem.rank]
        if problem.rank != problem.root:
            return Instance(arguments=(own,), expected=(None,))
        exact = exactly_representable(payload) and magnitude == 1.0
        return Instance(arguments=(own,), expected=(sum_expected(inputs, exact=exact),))

    def least_sent(self, problem: Problem) -> int:
        """Return S: a rank's buffer must leave it once."""
        return problem.count


run_block = partial(measure_block, how=Measurement(operation=Reduce()))
"""Measure a block."""
