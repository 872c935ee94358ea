"""Gated linear attention over a split sequence: its inputs, and the outputs of the recurrence in float64.

``api.linear_attention`` says what ``run`` is given.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from paceline.families.collectives.api.linear_attention import MIN_DECAY, recurrence
from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.payloads import draw
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Instance, TimedOperation, approximate
from paceline.families.collectives.ops.linear_attention.spec import OPERATION


class LinearAttention(TimedOperation):
    """The operation ``linear_attention``."""

    spec = OPERATION
    buffers = ("q_THD", "k_THD", "v_THD", "log_decay_THD", "out_THD")
    roles = ("in", "in", "in", "in", "out")
    scalable = False

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (T, H, D) five times."""
        shape = (problem.integer("tokens"), problem.integer("heads"), problem.integer("head_dim"))
        return (shape,) * 5

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw the whole sequence, run it in float64 token by token, and keep this rank's chunk."""
        shape = self.shapes(problem)[0]
        tokens, size, rank = shape[0], problem.world_size, problem.rank
        whole = (tokens * size, *shape[1:])
        count = tokens * size * shape[1] * shape[2]

        def shared(salt: int) -> Tensor:
            values = draw("gaussian", count, seed=seed + salt, rank=0, world_size=1, dtype=torch.float64)
            return values.view(whole).to(problem.device)

        q, k, v = (shared(s).to(problem.dtype) for s in (1, 2, 3))
        v = v * magnitude
        k = k * shape[2] ** -0.5
        log_decay = (MIN_DECAY + (1 - MIN_DECAY) * torch.sigmoid(shared(4))).log().to(problem.dtype)
        wide = [x.double() for x in (q, k, v, log_decay)]
        mine = slice(rank * tokens, (rank + 1) * tokens)
        reference = recurrence(*wide)
        naive = recurrence(q, k, v, log_decay)
        alone = recurrence(*(x[mine] for x in wide))
        return Instance(
            arguments=(q[mine], k[mine], v[mine], log_decay[mine], None),
            expected=(None, None, None, None, approximate(reference[mine], naive[mine])),
            wrong=(
                ("skipped-rank", (None, None, None, None, alone)),
                ("swapped-tokens", (None, None, None, None, reference[mine].roll(1, dims=0))),
            ),
        )


run_block = partial(measure_block, how=Measurement(operation=LinearAttention()))
"""Measure a block."""
