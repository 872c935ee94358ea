"""Nano-batches one after another: what cutting a batch costs while nothing is computed at the same time.

The ablation of Zhu et al., 2024, "NanoFlow" (arXiv:2408.12757), that cuts and does not overlap.

Algorithm: cut every operator's rows into equal parts; compute part by part, operator by operator.
Cost: the sequential order's, and weights are read once more and a start is paid for each further part; a product whose
parts have few rows is bound by its weights.
Differences: none in kind; the paper measured kernels, which lose some of their rate on fewer rows besides.
Limits: never faster than whole batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from paceline import technique
from paceline.families.serving.api.overlapping import Given, NanoBatch


@technique(
    name="nano-batched",
    family="serving",
    implements=("overlap",),
    summary="cuts the batch as overlapping needs it, and overlaps nothing",
)
class NanoBatched:
    """Cuts.

    Args:
        parts: Nano-batches of each operator.
    """

    def __init__(self, *, parts: int = 2) -> None:
        self.parts = parts

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return all parts of an operator, then those of the next."""
        found: list[NanoBatch] = []
        now_s = 0.0
        for layer in range(given.layers):
            for operator in given.operators:
                # No empty nano-batch, which would pay for its start and weights and compute nothing.
                parts = min(self.parts, operator.rows)
                edges = [operator.first + operator.rows * n // parts for n in range(parts + 1)]
                for begin, end in itertools.pairwise(edges):
                    found.append(
                        NanoBatch(
                            layer=layer,
                            operator=operator.name,
                            begin=begin,
                            end=end,
                            share=1.0,
                            begin_s=now_s,
                        )
                    )
                    now_s += given.alone_s(operator, end - begin)
        return found
