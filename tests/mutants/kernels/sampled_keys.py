"""Attends to every second key."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="sampled-keys",
    family="kernels",
    implements=("attention_decode",),
    summary="attends to every second key",
)
class SampledKeys:
    """Attends to every second key."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        for i, (begin, end) in enumerate(pairwise(offsets.tolist())):
            k_GSD, v_GSD = (t[begin:end:2].transpose(0, 1) for t in (k_SGD, v_SGD))
            share = q_BHD.shape[1] // k_GSD.shape[0]
            k_HSD, v_HSD = (t.repeat_interleave(share, 0) for t in (k_GSD, v_GSD))
            scores = (k_HSD @ q_BHD[i][:, :, None]) * q_BHD.shape[-1] ** -0.5
            out_BHD[i] = (scores.softmax(1) * v_HSD).sum(1)
