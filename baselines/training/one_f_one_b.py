"""1F1B: after a warm-up every rank does one forward, one backward, so that few activations are alive.

Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training" (SOSP 2019), section 3.2, in its
synchronous form: Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models" (PPoPP 2021),
section 3, and Megatron-LM's.

Algorithm (n ranks with one stage each, M microbatches):
1. Rank r does n − 1 − r forwards to fill the pipeline.
2. Then one forward and one backward in turn, backwards in the order of forwards.
3. The backwards that are left. Weights change once a step.

Cost of a step: as ``gpipe``'s in bytes and in bubble, (n − 1)/(M + n − 1) of the step. Activations of min(n − r, M)
microbatches on rank r instead of M.
Differences: none in the schedule. Gradients that were sent are kept to the end of the step.
Limits: the bubble still grows with n (``interleaved-1f1b`` and ``zb-h1`` shrink it).
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.pipeline.executor import PipelineReplica, pipeline_cost
from paceline.families.training.api.pipeline.schedule import Action, Table
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="1f1b",
    family="training",
    implements=("pipeline_parallel",),
    summary="a forward and a backward in turn, so that few activations are alive",
    properties={"exact": True, "replicas": "identical"},
)
class OneFOneB(PipelineReplica):
    """One forward, one backward."""

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return the header's table."""
        return table(ranks, microbatches)


def table(ranks: int, microbatches: int) -> Table:
    """Return the header's table: warm-up, turns, and what is left."""
    rows = []
    for rank in range(ranks):
        forwards = iter([Action("F", rank, m) for m in range(microbatches)])
        # zip stops at the shorter one: with fewer microbatches than ranks the warm-up simply takes all forwards.
        row = [action for _, action in zip(range(ranks - 1 - rank), forwards, strict=False)]
        for m in range(microbatches):
            # At most one forward for each backward, and none once they are used up: the cool-down.
            row += [action for _, action in zip(range(1), forwards, strict=False)]
            row.append(Action("B", rank, m))
        rows.append(row)
    return rows


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    return pipeline_cost(task)
