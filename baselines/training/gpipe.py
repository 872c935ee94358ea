"""GPipe: all microbatches go forward through the stages, then all come back.

Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism" (NeurIPS 2019), section 2.

Algorithm (n ranks with one stage each, M microbatches):
1. Every rank does F for microbatches 0 … M − 1, as they arrive.
2. Then B for M − 1 … 0. Gradients add up; weights change once a step.
3. With ``recompute`` (section 2.3) F keeps what comes into the stage alone, and B goes forward again first.

Cost of a step: 4·d bytes for each token and each boundary, forward and again back, in M messages each way; the tied
embedding's gradient and its new values, 4·V·d bytes each. Bubble: (n − 1)/(M + n − 1) of the step. Activations of M
microbatches; with ``recompute`` M boundaries and the activations of one microbatch, for one forward more.
Limits: memory grows with M, which the bubble wants large (``1f1b`` keeps at most n).
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.pipeline.executor import PipelineReplica, pipeline_cost
from paceline.families.training.api.pipeline.schedule import Action, Table
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="gpipe",
    family="training",
    implements=("pipeline_parallel",),
    summary="all microbatches forward, then all of them back",
    paper="gpipe",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "reimplementation",
            "paper": "sections 2 and 2.3 by the header, not read for this card",
            "code": (
                "github.com/tensorflow/lingvo: lingvo/core/gpipe.py, which leaves order and recomputation to "
                "recurrent.StackedRecurrent (not read); github.com/kakaobrain/torchgpipe: torchgpipe/pipeline.py, "
                "torchgpipe/gpipe.py"
            ),
        },
        "deviations": (
            (
                "``recompute`` is off by default, since the other schedules are compared without it; the paper's "
                "figures are with it."
            ),
            (
                "With it every microbatch is computed again; torchgpipe leaves out the last one, which comes back "
                "at once."
            ),
        ),
        "constants": {
            "recompute": {
                "here": False,
                "authors": "on in the paper by the header; all but the last microbatch in torchgpipe",
            },
        },
        "checked_by": (
            "tests/unit/test_pipeline.py::test_gpipe_and_1f1b_have_the_bubble_of_gpipes_paper",
            "tests/unit/test_pipeline.py::test_gpipe_is_pytorchs_but_for_the_order_of_backwards",
        ),
    },
)
class GPipe(PipelineReplica):
    """All forwards before all backwards."""

    def __init__(self, task: Task, comm: Comm, *, recompute: bool = False) -> None:
        super().__init__(task, comm, recompute=recompute)

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return the header's table."""
        return table(ranks, microbatches)


def table(ranks: int, microbatches: int) -> Table:
    """Return F 0 … M − 1, B M − 1 … 0 for every rank."""
    return [
        [Action("F", rank, m) for m in range(microbatches)]
        # In reverse, as the backward of one graph over all microbatches would go.
        + [Action("B", rank, m) for m in reversed(range(microbatches))]
        for rank in range(ranks)
    ]


def cost(task: Task) -> Cost:
    """Return the header's formula: what is computed again is not sent again."""
    return pipeline_cost(task)
