"""ZeCO: of linear attention's sequence one state passes from rank to rank, in blocks that follow each other.

Chou et al., "ZeCO: Zero Communication Overhead Sequence Parallelism for Linear Attention", arXiv 2507.01004, 2025,
section 3.2 (All-Scan) and algorithm 1.

Algorithm (n ranks with t consecutive positions of T each):
1. Run the recurrence over the own positions as if nothing came before.
2. As each block of the state before them arrives, decay it, add the own contribution, and send it on.
3. The state before adds to every output what its query, decayed, reads from it.
4. Backward: the state's gradient passes from the last rank to the first by the same scan, each rank adding what its
   outputs say.

Cost of a layer and sequence: one state, G·K·K elements (G heads of keys, of width K), from every rank but the last
forward and from every rank but the first backward, in ``blocks`` messages each, whatever T and n; a scan takes
n − 1 + (blocks − 1) transfers of a block instead of (n − 1)·blocks. Memory: one state.

Limits: the last rank waits for n − 1 hops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.collectives.api.scans import BlockScan
from paceline.families.training.api.replica import Comm, Cost, Task
from paceline.families.training.api.sequence.replica import row_of
from paceline.families.training.api.sequence.states import StateReplica, state_cost


@technique(
    name="zeco",
    family="training",
    implements=("sequence_parallel",),
    summary="one state of linear attention passes through the ranks, in blocks",
    paper="zeco",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "section 3.2 and algorithm 1 by the header, not read for this card",
            "code": "none found",
        },
        "deviations": (
            (
                "Messages go from point to point in a process group, so that the scan begins when a rank's own "
                "positions are done, and not beside them."
            ),
            "Decays lie in [0.9, 1).",
        ),
        "constants": {
            "blocks": {"here": 4, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_sequence.py::test_linear_attention_sends_one_state_each_way_whatever_the_length",
            "tests/unit/test_sequence.py::test_the_chunked_recurrence_is_the_recurrence_with_its_gradients",
        ),
    },
)
class ZeCO(StateReplica):
    """All-Scan of the state, forward and backward. N heads of all sequences, K width, C rows of a block."""

    def __init__(self, task: Task, comm: Comm, *, blocks: int = 4) -> None:
        super().__init__(task, comm)
        # Rows of the state do not depend on each other (the decay acts on rows), so they may travel apart.
        self.bounds = bounds(task, blocks)

    def scan(self, own_NKK: Tensor, decay_NK: Tensor, *, before: int | None, after: int | None) -> Tensor:
        """Let the state pass in blocks."""
        num_heads, _, width = own_NKK.shape
        arriving_NCK = [own_NKK.new_empty(num_heads, stop - start, width) for start, stop in self.bounds]
        scan = BlockScan(self.comm, self.bounds, arriving_NCK, before=before, after=after)
        prefix_NKK = torch.zeros_like(own_NKK)
        scan.run(own_NKK, decay_NK, prefix_NKK)
        # Waited for at the end only: a send of one block overlaps the decay and sum of the next.
        scan.finish()
        return prefix_NKK


def bounds(task: Task, blocks: int) -> list[tuple[int, int]]:
    """Return the rows of each block: no more blocks than rows."""
    width = row_of(task).head_width
    return chunk_bounds(width, min(blocks, width))


def cost(task: Task, *, blocks: int) -> Cost:
    """Return the closed forms of the header."""
    return state_cost(task, len(bounds(task, blocks)))
