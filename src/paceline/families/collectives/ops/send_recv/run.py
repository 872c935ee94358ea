"""Send-receive as ranks run it: ``run(send [count], receive [count])``, to rank + 1, from rank − 1, modulo n."""

from __future__ import annotations

from functools import partial

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Expected, Instance, TimedOperation
from paceline.families.collectives.ops.send_recv.spec import OPERATION


class SendReceive(TimedOperation):
    """The operation ``send_recv``."""

    spec = OPERATION
    buffers = ("send", "receive")
    roles = ("in", "out")

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (count,) twice."""
        return ((problem.count,), (problem.count,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one buffer a rank; rank r ends with rank r − 1's."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        size = problem.world_size
        return Instance(
            arguments=(inputs[problem.rank], None),
            expected=(None, Expected(value=inputs[(problem.rank - 1) % size])),
            wrong=(
                ("wrong-direction", (None, inputs[(problem.rank + 1) % size])),
                ("identity", (None, inputs[problem.rank])),
            ),
        )

    def least_sent(self, problem: Problem) -> int:
        """Return S: a rank's buffer must leave it once."""
        return problem.count


run_block = partial(measure_block, how=Measurement(operation=SendReceive()))
"""Measure a block."""
