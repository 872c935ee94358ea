"""Operators one after another, each on the whole batch and the whole device: what engines do by default.

NanoFlow's account of it (Zhu et al., 2024, arXiv:2408.12757): while memory or links are what an operator waits for,
the units that compute stand still.

Algorithm: layer by layer, operator by operator, begin when the one before has ended.
Cost: the sum of all operators' times alone; no row is read twice.
Differences: none.
Limits: compute is busy for the share of the time that compute-bound operators have.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline import technique
from paceline.families.serving.api.overlapping import Given, NanoBatch


@technique(
    name="sequential-operators",
    family="serving",
    implements=("overlap",),
    summary="every operator takes the whole batch and the whole device, one after another",
)
class SequentialOperators:
    """Cuts nothing."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return one nano-batch of each operator and layer."""
        found: list[NanoBatch] = []
        now_s = 0.0
        for layer in range(given.layers):
            for operator in given.operators:
                found.append(
                    NanoBatch(
                        layer=layer,
                        operator=operator.name,
                        # All rows at once: weights are read once a layer, which is what every cut has to pay back.
                        begin=operator.first,
                        end=operator.last,
                        share=1.0,
                        begin_s=now_s,
                    )
                )
                now_s += given.alone_s(operator, operator.rows)
        return found
