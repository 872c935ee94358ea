"""Softmax attention over a split sequence: its inputs, and the outputs over all keys in float64.

``api.sequence_attention`` says what ``run`` is given.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.api.sequence_attention import attend
from paceline.families.collectives.core.payloads import draw
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Instance, TimedOperation, approximate
from paceline.families.collectives.ops.sequence_attention.spec import OPERATION


class SequenceAttention(TimedOperation):
    """The operation ``sequence_attention``."""

    spec = OPERATION
    buffers = ("q_TGD", "k_THD", "v_THD", "out_TGD", "lse_TG")
    roles = ("in", "in", "in", "out", "out")
    scalable = False

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (T, G, D), (T, H, D) twice, (T, G, D) and (T, G)."""
        tokens, width = problem.integer("tokens"), problem.integer("head_dim")
        query_heads, heads = problem.integer("heads"), problem.integer("kv_heads")
        queries, keys = (tokens, query_heads, width), (tokens, heads, width)
        return (queries, keys, keys, queries, (tokens, query_heads))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw the whole sequence, attend in float64, and keep this rank's queries."""
        shapes = self.shapes(problem)
        tokens, size, rank = shapes[0][0], problem.world_size, problem.rank

        def shared(salt: int, shape: tuple[int, ...]) -> Tensor:
            count = size * shape[0] * shape[1] * shape[2]
            values = draw("gaussian", count, seed=seed + salt, rank=0, world_size=1, dtype=torch.float64)
            return values.view(size * shape[0], *shape[1:]).to(problem.dtype).to(problem.device)

        q, k, v = shared(1, shapes[0]), shared(2, shapes[1]), shared(3, shapes[2]) * magnitude
        mine = slice(rank * tokens, (rank + 1) * tokens)
        out, lse = attend(q[mine].double(), k.double(), v.double())
        naive_out, naive_lse = attend(q[mine], k, v)
        alone_out, alone_lse = attend(q[mine].double(), k[mine].double(), v[mine].double())
        nothing = (None, None, None)
        return Instance(
            arguments=(q[mine], k[mine], v[mine], None, None),
            expected=(*nothing, approximate(out, naive_out), approximate(lse, naive_lse)),
            wrong=(
                ("skipped-rank", (*nothing, alone_out, alone_lse)),
                ("swapped-tokens", (*nothing, out.roll(1, dims=0), lse.roll(1, dims=0))),
            ),
        )


run_block = partial(measure_block, how=Measurement(operation=SequenceAttention()))
"""Measure a block."""
