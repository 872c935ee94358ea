"""Gossip as ranks run it: ``run(buffer [count])``, in place, moves replicas towards their mean.

Which replicas mix is the technique's choice, so no result is prescribed: the mixing weights are recovered from the
outputs, and must be doubly stochastic (``gate``).
"""

from __future__ import annotations

from functools import partial

import torch

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import (
    Expected,
    InPlace,
    Instance,
    exact_sum,
    sum_bound,
)
from paceline.families.collectives.ops.mix.figures import spread_ratios
from paceline.families.collectives.ops.mix.gate import JUDGEMENT
from paceline.families.collectives.ops.mix.spec import OPERATION


class Mix(InPlace):
    """The operation ``mix``."""

    spec = OPERATION

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one buffer a rank; the expected value is the mean, which full mixing would reach."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        mean = exact_sum(inputs).to(torch.float64) / problem.world_size
        dtype = problem.dtype if problem.dtype.is_floating_point else torch.float64
        bound = sum_bound([x.to(dtype) for x in inputs], dtype, problem.world_size + 1)
        return Instance(
            arguments=(inputs[problem.rank],),
            expected=(Expected(value=mean, bound=bound, contributions=tuple(inputs)),),
        )


run_block = partial(
    measure_block, how=Measurement(operation=Mix(), judgement=JUDGEMENT, figures=spread_ratios)
)
"""Measure a block."""
