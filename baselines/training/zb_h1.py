"""ZB-H1: gradients of weights, for which nobody waits, fill the bubbles of 1F1B within its memory.

Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), sections 2 and 2.1 (handcrafted schedule H1).

Algorithm (n ranks with one stage each, M microbatches; I: backward to the input, W: to the weights):
1. Rank r does n − 1 − r forwards, as in 1F1B; then a forward and an I in turn.
2. From the (r + 1)-th I on, every I is followed by the W of r microbatches before: later ranks put off more of them.
3. The W's that are left fill the end.

Cost of a step: bytes and messages of ``1f1b``. Bubble: (n − 1)·(tF + tI − tW), a third of 1F1B's when the three are
equal. Activations of at most n microbatches on every rank, 1F1B's peak.
Limits: what W needs, inputs and outputs' gradients of each linear layer, is kept until then.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.pipeline.executor import PipelineReplica, pipeline_cost
from paceline.families.training.api.pipeline.schedule import Action, Table
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="zb-h1",
    family="training",
    implements=("pipeline_parallel",),
    summary="1F1B whose bubbles are filled with gradients of weights",
    paper="zero-bubble",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the handcrafted schedule H1 by the header, not read for this card",
            "code": (
                "github.com/sail-sg/zero-bubble-pipeline-parallelism: README.md, "
                "megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py"
            ),
        },
        "deviations": (
            (
                "Gradients of weights are put off for linear layers alone; norms' gains and the embedding's "
                "lookup come with I."
            ),
            (
                "The order is fixed; the authors' code searches one for measured times and a memory, with eight "
                "settings of a heuristic."
            ),
            "The optimiser is not started before all ranks have ended.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_pipeline.py::test_zero_bubble_schedules_have_the_bubbles_and_the_memory_of_their_paper",
            "tests/unit/test_pipeline_gradients.py::test_every_gradient_is_that_of_one_process",
        ),
    },
)
class ZbH1(PipelineReplica):
    """Split backwards in 1F1B's memory."""

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return the header's table."""
        return table(ranks, microbatches)


def table(ranks: int, microbatches: int) -> Table:
    """Return the header's table."""
    rows = []
    for rank in range(ranks):
        # 1F1B's warm-up; with r W's put off and the one in hand, n microbatches on every rank: 1F1B's peak.
        warm = min(ranks - 1 - rank, microbatches)
        row = [Action("F", rank, m) for m in range(warm)]
        for m in range(microbatches):
            row += [Action("F", rank, warm + m)] if warm + m < microbatches else []
            row.append(Action("I", rank, m))
            # Rank r has its last I r hops before rank 0 has: it keeps r W's to fill that gap.
            row += [Action("W", rank, m - rank)] if m >= rank else []
        row += [Action("W", rank, m) for m in range(max(microbatches - rank, 0), microbatches)]
        rows.append(row)
    return rows


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    return pipeline_cost(task)
