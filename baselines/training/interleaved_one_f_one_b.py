"""Interleaved 1F1B: every rank has several thin stages, so that the pipeline fills and drains in thin steps.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC 2021),
section 2.2.

Algorithm (n ranks with v stages each; stage c·n + r is chunk c of rank r; M microbatches in groups of n):
1. The k-th forward of a rank belongs to chunk ⌊k/n⌋ mod v and to microbatch n·⌊k/(n·v)⌋ + k mod n; backwards go
   through the chunks from the last one.
2. Rank r does 2·(n − 1 − r) + (v − 1)·n forwards to fill the pipeline, then a forward and a backward in turn.

Cost of a step: (n·v − 1)/(n − 1) times the messages and bytes of ``1f1b`` across boundaries; the busiest rank sends 2·v
activations or gradients a microbatch instead of 2, of two ranks 2·v − 1 instead of 1. Bubble: (n − 1)/v times the time
of a microbatch in a whole rank instead of n − 1 times. Activations: those of 2·(n − 1 − r) + (v − 1)·n + 1 thin stages.
Limits: M must be a multiple of n.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.pipeline.executor import PipelineReplica, pipeline_cost
from paceline.families.training.api.pipeline.schedule import Action, Table
from paceline.families.training.api.replica import Comm, Cost, Task, UnsupportedError


@technique(
    name="interleaved-1f1b",
    family="training",
    implements=("pipeline_parallel",),
    summary="1F1B over several thin stages a rank",
    paper="megatron-lm",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 2.2 by the header, not read for this card",
            "code": "github.com/NVIDIA/Megatron-LM: megatron/core/pipeline_parallel/schedules.py",
        },
        "deviations": (
            (
                "None found: the number of forwards before the first backward is that of the authors' code for "
                "groups as long as there are ranks."
            ),
        ),
        "constants": {
            "chunks": {"here": 2, "authors": "set by the user (virtual_pipeline_parallel_size)"},
        },
        "checked_by": (
            "tests/unit/test_pipeline.py::test_interleaved_1f1b_is_pytorchs",
            "tests/unit/test_pipeline.py::test_chunks_divide_the_bubble",
        ),
    },
)
class InterleavedOneFOneB(PipelineReplica):
    """One forward, one backward, of thin stages."""

    def __init__(self, task: Task, comm: Comm, *, chunks: int = 2) -> None:
        self.chunks = chunks
        super().__init__(task, comm, chunks)

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return the header's table."""
        return table(ranks, microbatches, self.chunks)


def table(ranks: int, microbatches: int, chunks: int) -> Table:
    """Return the header's table.

    Raises:
        UnsupportedError: M is no multiple of n.
    """
    if microbatches % ranks:
        raise UnsupportedError(f"{microbatches} microbatches are no multiple of {ranks} ranks")
    total = microbatches * chunks
    rows = []
    for rank in range(ranks):
        # n microbatches pass through a chunk in turn: the first of them has then come around all ranks.
        order = [(k // ranks % chunks, k // (ranks * chunks) * ranks + k % ranks) for k in range(total)]
        forwards = [Action("F", chunk * ranks + rank, m) for chunk, m in order]
        backwards = [Action("B", (chunks - 1 - chunk) * ranks + rank, m) for chunk, m in order]
        # Twice 1F1B's head start, and (v − 1)·n: the first microbatch passes all chunks before it comes back.
        warm = min(2 * (ranks - 1 - rank) + (chunks - 1) * ranks, total)
        row = forwards[:warm]
        for k in range(total):
            # Empty once the forwards are used up, which leaves the cool-down: backwards alone.
            row += forwards[warm + k : warm + k + 1]
            row.append(backwards[k])
        rows.append(row)
    return rows


def cost(task: Task, *, chunks: int) -> Cost:
    """Return the header's formula."""
    return pipeline_cost(task, chunks)
