"""Cannon's algorithm on a q × q grid: blocks of A move left, blocks of B move up, one receive buffer at a time.

Foldi, von Csefalvay and Perez, "JAMPI: efficient matrix multiplication in Spark using Barrier Execution Mode",
arXiv 2007.01811, 2020; L. E. Cannon, PhD thesis, Montana State University, 1969.

Algorithm (p = q² ranks, blocks of n²/p elements):
1. Skew: row i of the grid shifts its blocks of A left by i, column j its blocks of B up by j.
2. q times: C += A · B with the blocks at hand; between the rounds A moves left by one, B up by one.

Cost: at most 2 + 2(q − 1) blocks sent by a rank, 2n²/√p elements; 4 n²/p elements held: A, B, C and the block that
arrives.
Limits: the number of ranks is a square that divides the side.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.matrix_product import grid
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="cannon",
    family="collectives",
    implements=("matrix_product",),
    summary="blocks move left and up, one receive buffer at a time",
    paper="jampi",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract, sections on Cannon's algorithm, on JAMPI, and on memory and time",
            "code": "github.com/starschema/jampi-spark-dotmatrix: DotProduct.scala, nio/PeerMessage.scala, "
            "CartesianTopology.scala, paper/jampi-spark-dotmatrix-mdpi.tex",
        },
        "deviations": (
            "Messages of the communicator stand for the sockets of a Spark barrier stage.",
            "A block arrives whole in a buffer of its size; the authors' travels through 8 MiB and overwrites itself.",
            "The skew of B moves B, as Cannon's algorithm does; the authors' public code hands A to that message too.",
        ),
        "constants": {},
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class Cannon:
    """S: side of a block."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.comm = comm
        self.q = grid(problem.world_size)
        self.row, self.column = divmod(problem.rank, self.q)

    def run(self, a_SS: Tensor, b_SS: Tensor, c_SS: Tensor) -> None:
        """Multiply; A and B are overwritten."""
        # Taken in the call, where the memory that it holds is measured: the one receive buffer of the 4 n²/p bound.
        spare_SS = torch.empty_like(a_SS) if self.q > 1 else a_SS
        # After this skew rank (i, j) holds A[i, i + j] and B[i + j, j], whose product belongs to C[i, j].
        a_SS, spare_SS = self._left(a_SS, spare_SS, self.row)
        b_SS, spare_SS = self._up(b_SS, spare_SS, self.column)
        # The first product writes C, which holds nothing yet.
        torch.mm(a_SS, b_SS, out=c_SS)
        for _ in range(self.q - 1):
            a_SS, spare_SS = self._left(a_SS, spare_SS, 1)
            b_SS, spare_SS = self._up(b_SS, spare_SS, 1)
            c_SS.addmm_(a_SS, b_SS)

    def _left(self, block: Tensor, spare: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        to, source = (self._rank(self.row, self.column + sign * steps) for sign in (-1, 1))
        return self._shift(block, spare, to, source, steps)

    def _up(self, block: Tensor, spare: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        to, source = (self._rank(self.row + sign * steps, self.column) for sign in (-1, 1))
        return self._shift(block, spare, to, source, steps)

    def _rank(self, row: int, column: int) -> int:
        return row % self.q * self.q + column % self.q

    def _shift(self, block: Tensor, spare: Tensor, to: int, source: int, steps: int) -> tuple[Tensor, Tensor]:
        """Exchange a block and return what arrived, and the buffer that is free now."""
        # A whole turn: the message would go to this rank itself.
        if steps % self.q == 0:
            return block, spare
        # Send and receive start together: the ring of a row or column cannot block on itself.
        self.comm.exchange(block, to, spare, source)
        return spare, block


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    q = grid(problem.world_size)
    block = (problem.integer("side") // q) ** 2 * problem.item_bytes
    skewed = 2 * q * (q - 1)
    moves = [(1 if i else 0) + (1 if j else 0) + 2 * (q - 1) for i in range(q) for j in range(q)]
    # q − 1 rows skew A and q − 1 columns skew B, by q ranks each; then everyone moves two blocks q − 1 times.
    assert sum(moves) == skewed + 2 * (q - 1) * q * q
    return Cost(
        sent_bytes=max(moves) * block,
        messages=max(moves),
        total_bytes=sum(moves) * block,
        steps=max(moves),
    )
