"""Reads keys in chunks with a running maximum."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="online-softmax",
    family="kernels",
    implements=("attention_decode",),
    summary="reads keys in chunks with a running maximum",
)
class OnlineSoftmax:
    """Reads keys in chunks with a running maximum."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor) -> None:
        """Compute as anybody may."""
        for i, (begin, end) in enumerate(pairwise(offsets.tolist())):
            share = q_BHD.shape[1] // k_SGD.shape[1]
            highest = q_BHD.new_full((q_BHD.shape[1], 1), float("-inf"))
            total, sum_HD = torch.zeros_like(highest), torch.zeros_like(q_BHD[i])
            for low in range(begin, end, 16):
                k_HCD, v_HCD = (
                    t[low : min(low + 16, end)].transpose(0, 1).repeat_interleave(share, 0)
                    for t in (k_SGD, v_SGD)
                )
                scores_HC = (k_HCD @ q_BHD[i][:, :, None])[..., 0] * q_BHD.shape[-1] ** -0.5
                higher = torch.maximum(highest, scores_HC.amax(1, keepdim=True))
                weights_HC, shrink = (scores_HC - higher).exp(), (highest - higher).exp()
                total = total * shrink + weights_HC.sum(1, keepdim=True)
                sum_HD = sum_HD * shrink + (weights_HC[:, None] @ v_HCD)[:, 0]
                highest = higher
            torch.div(sum_HD, total, out=out_BHD[i])
