"""All-reduce as ranks run it: ``run(buffer [count])``, in place."""

from __future__ import annotations

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.inputs import everyones_inputs, exactly_representable
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import InPlace, Instance, sum_expected
from paceline.families.collectives.ops.all_reduce.bare_loop import BareLoop
from paceline.families.collectives.ops.all_reduce.parameters import BARE_LOOP
from paceline.families.collectives.ops.all_reduce.spec import OPERATION
from paceline.worker.ranks.session import Block, Session


class AllReduce(InPlace):
    """The operation ``all_reduce``."""

    spec = OPERATION

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one input a rank; the result is their sum."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        exact = exactly_representable(payload) and magnitude == 1.0
        return Instance(arguments=(inputs[problem.rank],), expected=(sum_expected(inputs, exact=exact),))

    def least_sent(self, problem: Problem) -> int:
        """Return S·(n−1)/n: every rank's data must leave it once."""
        return problem.count * (problem.world_size - 1) // problem.world_size


def run_block(session: Session, block: Block) -> None:
    """Measure a block, with the bare loop beside it where the point asks for it."""
    bare = block.params.get("reference_timer") == BARE_LOOP
    how = Measurement(operation=AllReduce(), reference_timers={"bare_loop_s": BareLoop} if bare else {})
    measure_block(session, block, how)
