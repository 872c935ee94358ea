"""A matrix product on a square grid of ranks: ``run(a_SS, b_SS, c_SS)``.

p = q² ranks form a q × q grid, rank r at row r // q and column r % q. Each holds one block of A and of B, S = side / q
elements wide, and ends with its block of C = A · B. The blocks of A and B may be overwritten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.collectives.operation import Instance, Role, approximate
from paceline.families.collectives.payloads import draw
from paceline.families.collectives.problem import Problem


def grid(world_size: int) -> int:
    """Return q for q² ranks."""
    return math.isqrt(world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """The operation ``matrix_product``."""

    name: str = "matrix_product"
    buffers: tuple[str, ...] = ("a_SS", "b_SS", "c_SS")
    roles: tuple[Role, ...] = ("inout", "inout", "out")
    scalable: bool = False

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (S, S) three times."""
        width = problem.integer("side") // grid(problem.world_size)
        return ((width, width),) * 3

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw both matrices, the same for all ranks, and multiply them in float64."""
        side, q = problem.integer("side"), grid(problem.world_size)
        width = side // q
        row, column = divmod(problem.rank, q)

        def shared(salt: int) -> Tensor:
            values = draw(
                "gaussian", side * side, seed=seed + salt, rank=0, world_size=1, dtype=torch.float64
            )
            return values.to(problem.device).view(side, side)

        a, b = (shared(1) * magnitude).to(problem.dtype), shared(2).to(problem.dtype)
        rows, columns = slice(row * width, (row + 1) * width), slice(column * width, (column + 1) * width)
        wide = a[rows].double() @ b[:, columns].double()
        naive = a[rows] @ b[:, columns]
        short = a[rows, : side - width].double() @ b[: side - width, columns].double()
        other = a[rows].double() @ b.double().roll(width, 1)[:, columns]
        return Instance(
            arguments=(a[rows, columns].contiguous(), b[rows, columns].contiguous(), None),
            expected=(None, None, approximate(wide, naive)),
            wrong=(
                ("skipped-rank", (None, None, short)),
                ("wrong-column", (None, None, other)),
            )
            if q > 1
            else (),
        )
