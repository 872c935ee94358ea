"""A matrix product by gathering whole panels: each rank collects its row of A and its column of B, then multiplies.

Algorithm (p = q² ranks, blocks of n²/p elements): receive the q − 1 missing blocks of the own row of A and of the own
column of B, send the own blocks to the same ranks, then C = Σₖ A[i, k] · B[k, j].

Cost: 2(q − 1) blocks sent by each rank, in one step; (2/√p + 1/p) n² elements held: 2q blocks of A and B, and C.
Limits: memory grows with √p beside what Cannon's algorithm, its rival here, holds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.matrix_product import grid
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="panel-all-gather",
    family="collectives",
    implements=("matrix_product",),
    summary="whole panels of A and B are gathered, then multiplied",
    properties={"exact": True},
)
class PanelAllGather:
    """S: side of a block."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.comm = comm
        self.q = grid(problem.world_size)
        self.row, self.column = divmod(problem.rank, self.q)

    def run(self, a_SS: Tensor, b_SS: Tensor, c_SS: Tensor) -> None:
        """Gather and multiply."""
        # Taken in the call, where the memory that it holds is measured; the own blocks are used where they are.
        a_panel = [a_SS if k == self.column else torch.empty_like(a_SS) for k in range(self.q)]
        b_panel = [b_SS if k == self.row else torch.empty_like(b_SS) for k in range(self.q)]
        beside = [(k, self.row * self.q + k) for k in range(self.q) if k != self.column]
        above = [(k, k * self.q + self.column) for k in range(self.q) if k != self.row]
        # All sends and receives start together: one dependent step, and no order of blocking calls to deadlock.
        self.comm.start(
            sends=[*((a_SS, rank) for _, rank in beside), *((b_SS, rank) for _, rank in above)],
            receives=[
                *((a_panel[k], rank) for k, rank in beside),
                *((b_panel[k], rank) for k, rank in above),
            ],
        ).wait()
        torch.mm(a_panel[0], b_panel[0], out=c_SS)
        # In the order of k on every rank, so that a block's sum does not depend on what arrived first.
        for k in range(1, self.q):
            c_SS.addmm_(a_panel[k], b_panel[k])


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    q = grid(problem.world_size)
    block = (problem.integer("side") // q) ** 2 * problem.item_bytes
    return Cost(
        sent_bytes=2 * (q - 1) * block,
        messages=2 * (q - 1),
        total_bytes=2 * (q - 1) * q * q * block,
        steps=1 if q > 1 else 0,
    )
