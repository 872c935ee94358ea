"""A matrix product on a square grid of ranks: its inputs, and each rank's block of the product in float64.

``api.matrix_product`` says what ``run`` is given.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from paceline.families.collectives.api.matrix_product import grid
from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.payloads import draw
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Instance, TimedOperation, approximate
from paceline.families.collectives.ops.matrix_product.figures import held_bytes
from paceline.families.collectives.ops.matrix_product.spec import OPERATION


class MatrixProduct(TimedOperation):
    """The operation ``matrix_product``."""

    spec = OPERATION
    buffers = ("a_SS", "b_SS", "c_SS")
    roles = ("inout", "inout", "out")
    scalable = False

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


run_block = partial(measure_block, how=Measurement(operation=MatrixProduct(), figures=held_bytes))
"""Measure a block."""
