"""Tensor, pipeline and data parallelism at once: matrices, layers and sequences are dealt out in a mesh of ranks.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC 2021), sections
2 and 3 (PTD-P); matrices as in Shoeybi et al., "Megatron-LM" (2019), section 3.

Algorithm (n = t·d·p ranks, M microbatches of each of d copies):
1. t neighbours hold a t-th of every matrix: whole heads of attention, equal parts of the perceptron. The stream is
   summed over them after attention and after the perceptron, its gradient before them.
2. p ranks hold the layers of a copy and follow 1F1B.
3. Each copy works through a d-th of the sequences; gradients are averaged over the d ranks that hold the same.

Cost of a step, for a rank with l = L/p layers, B sequences of T positions, width D, and P' parameters of its own:
4·B·T·D/d bytes for each boundary forward and again back, in M messages each way; 4·l·M sums of B·T·D/(d·M) elements
over t ranks, each 2·(t − 1)/t of them; 2·(d − 1)/d · 4P' bytes for gradients; at both ends of a pipeline the tied
embedding's 4·V·D. Bubble: (p − 1)/(M + p − 1).
Limits: t divides the heads, p the layers, d·M the sequences; norms and the embedding lie on all t ranks.
"""

from __future__ import annotations

from paceline.baselines.training import one_f_one_b

from paceline import technique
from paceline.families.training.api.hybrid.replica import HybridReplica, hybrid_cost
from paceline.families.training.api.pipeline.schedule import Table
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="megatron-3d",
    family="training",
    implements=("pipeline_parallel",),
    summary="matrices, layers and sequences dealt out in a mesh: tensor × data × pipeline",
    paper="megatron-lm",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 2 and 3, and section 3 of the paper of 2019, by the header, not read for this card",
            "code": (
                "github.com/NVIDIA/Megatron-LM: megatron/core/pipeline_parallel/schedules.py; its tensor "
                "parallelism was not read"
            ),
        },
        "deviations": (
            "Vocabulary and loss are not cut (64 or 256 symbols).",
            "What stages send is not scattered and gathered (section 4.1), so that all t ranks send the same.",
            "Sums are the harness's rings, whose bytes are counted, instead of NCCL's.",
        ),
        "constants": {
            "tensor": {"here": 2, "authors": "set by the user"},
            "pipeline": {"here": 2, "authors": "set by the user"},
        },
        "checked_by": ("tests/unit/test_hybrid.py::test_a_mesh_finds_the_gradients_of_one_process",),
    },
)
class Megatron3d(HybridReplica):
    """1F1B in a mesh."""

    def __init__(self, task: Task, comm: Comm, *, tensor: int = 2, pipeline: int = 2) -> None:
        super().__init__(task, comm, tensor=tensor, pipeline=pipeline)

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return the table of 1F1B."""
        # The schedule sees a pipeline's p ranks alone; the executor maps them to ranks that are t·d apart (Mesh).
        found: Table = one_f_one_b.table(ranks, microbatches)
        return found


def cost(task: Task, *, tensor: int, pipeline: int) -> Cost:
    """Return the header's formula."""
    return hybrid_cost(task, tensor=tensor, pipeline=pipeline)
