"""ZB-H2: more forwards in the warm-up, so that with gradients of weights in the gaps no rank ever waits.

Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024), section 2.2 (handcrafted schedule H2).

Algorithm (n ranks with one stage each, M microbatches; I: backward to the input, W: to the weights):
1. Rank r does 2·(n − r) − 1 forwards: as many as fit before the first gradient comes back.
2. Then an I, the W of 2·r microbatches before if there is one, and a forward, in turn.
3. The W's that are left fill the end, so that ranks end as far apart as they began.

Cost of a step: bytes and messages of ``1f1b``. Bubble within a rank's own span: (n − 1)·(tF + tI − 2·tW), none when the
three are equal. Activations of 2·n − 1 microbatches on every rank, about twice 1F1B's peak.
Limits: needs M ≥ 2·n − 1 to fill the pipeline.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.pipeline.executor import PipelineReplica, pipeline_cost
from paceline.families.training.api.pipeline.schedule import Action, Table
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="zb-h2",
    family="training",
    implements=("pipeline_parallel",),
    summary="no bubble within a rank's span, for twice the activations",
    paper="zero-bubble",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the handcrafted schedule H2 by the header, not read for this card",
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
            (
                "Steps end together; the paper lets ranks start the next step as they end this one, and corrects "
                "the optimiser afterwards, so that here the ends' stagger is waited for."
            ),
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_pipeline.py::test_zero_bubble_schedules_have_the_bubbles_and_the_memory_of_their_paper",
            "tests/unit/test_pipeline_gradients.py::test_every_gradient_is_that_of_one_process",
        ),
    },
)
class ZbH2(PipelineReplica):
    """Split backwards with a long warm-up."""

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return the header's table."""
        return table(ranks, microbatches)


def table(ranks: int, microbatches: int) -> Table:
    """Return the header's table."""
    rows = []
    for rank in range(ranks):
        # 2·(n − r) − 1 forwards and 2·r W's put off: 2·n − 1 on every rank, about twice 1F1B's peak.
        warm, late = min(2 * (ranks - rank) - 1, microbatches), 2 * rank
        row = [Action("F", rank, m) for m in range(warm)]
        for m in range(microbatches):
            # I first: the rank before waits for it, whereas nobody waits for W.
            row.append(Action("I", rank, m))
            row += [Action("W", rank, m - late)] if m >= late else []
            row += [Action("F", rank, warm + m)] if warm + m < microbatches else []
        row += [Action("W", rank, m) for m in range(max(microbatches - late, 0), microbatches)]
        rows.append(row)
    return rows


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    return pipeline_cost(task)
