"""MeZO on several ranks: fine-tuning by two forward passes a probe, whose slopes travel as they are, in four bytes.

Malladi et al., "Fine-Tuning Language Models with Just Forward Passes" (NeurIPS 2023), definition 1 and algorithm 1;
with one rank it is the paper's method on one machine. All is the same as in ``just-one-byte`` but the code.

Algorithm (for each step; every rank has the same weights w and the same seed):
1. For each of Q probes a rank draws a direction z from (seed, step, rank, probe) and measures, on the probe's part of
   its sequences, the slope s = (L(w + ε·z) − L(w − ε·z)) / 2ε of their mean loss by two forward passes.
2. It sends s as a float32 to every other rank.
3. Every rank draws all directions anew and takes the step w ← w − rate · mean of s·z.

Cost of a step: 4·Q·(n − 1) bytes in n − 1 messages. Memory: as ``just-one-byte``.
Differences: w is put back from a copy (4P of the trained parameters), where the paper adds and subtracts ε·z in place:
that leaves rounding behind, other on every rank. The paper has one direction a step on one machine; here each rank has
its own, as the mean of n directions has less error.
Limits: those of ``just-one-byte``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.fine_tuning.probing import ProbingReplica, probing_cost
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="mezo",
    family="training",
    implements=("fine_tune",),
    summary="slopes in full precision, four bytes each",
    properties={"exact": False, "replicas": "identical", "slope_error": 1e-6},
)
class Mezo(ProbingReplica):
    """Share slopes as float32."""

    code_bytes = 4

    def encode(self, slopes: Tensor) -> Tensor:
        """Return the bytes of float32."""
        # The sender applies these bytes as well: the float64 slope that it knows would split replicas.
        return slopes.float().view(torch.uint8).view(-1, self.code_bytes)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the slopes that the bytes of float32 are."""
        return codes.contiguous().view(torch.float32).view(-1).double()


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    return probing_cost(task, Mezo.code_bytes)
