"""Reduce-scatter as ranks run it: ``run(send [count], receive [share])``."""

from __future__ import annotations

from functools import partial

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs, exactly_representable
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import (
    Instance,
    TimedOperation,
    exact_sum,
    sum_expected,
)
from paceline.families.collectives.ops.reduce_scatter.spec import OPERATION


class ReduceScatter(TimedOperation):
    """The operation ``reduce_scatter``."""

    spec = OPERATION
    buffers = ("send", "receive")
    roles = ("in", "out")

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (count,) and (share,)."""
        return ((problem.count,), (problem.share,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one full buffer a rank."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        shares = [x.view(problem.world_size, -1) for x in inputs]
        exact = exactly_representable(payload) and magnitude == 1.0
        mine = sum_expected([s[problem.rank] for s in shares], exact=exact)
        other = exact_sum([s[(problem.rank + 1) % problem.world_size] for s in shares])
        return Instance(
            arguments=(inputs[problem.rank], None),
            expected=(None, mine),
            wrong=(("swapped-ranks", (None, other.to(mine.value.dtype))),),
        )

    def least_sent(self, problem: Problem) -> int:
        """Return all shares but one: what the others end with needs this rank's data."""
        return problem.share * (problem.world_size - 1)


run_block = partial(measure_block, how=Measurement(operation=ReduceScatter()))
"""Measure a block."""
