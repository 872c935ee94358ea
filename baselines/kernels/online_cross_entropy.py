"""Cross-entropy in one pass over the logits: maximum and sum of exponentials are updated chunk by chunk.

Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867, section 3.

Algorithm: for each chunk of columns m' = max(m, chunk's maximum), l' = l · exp(m − m') + Σ exp(logit − m'); at the end
loss = m + log l − target's logit.

Cost: the logits are read once; no array of their size is written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="online-cross-entropy",
    family="kernels",
    implements=("cross_entropy",),
    summary="maximum and sum of exponentials updated chunk by chunk",
)
class OnlineCrossEntropy:
    """T tokens, V vocabulary."""

    def __init__(self, problem: Problem, *, chunk: int = 8192) -> None:
        self.chunk = chunk
        self.wide = torch.promote_types(problem.dtype, torch.float32)

    def run(self, logits_TV: Tensor, targets_T: Tensor, loss_T: Tensor) -> None:
        """Compute the loss of every token."""
        # exp(−∞ − m) is 0: the first chunk needs no case of its own.
        m_T = torch.full_like(loss_T, float("-inf"))
        l_T = torch.zeros_like(loss_T)
        for begin in range(0, logits_TV.shape[1], self.chunk):
            part = logits_TV[:, begin : begin + self.chunk].to(self.wide)
            higher_T = torch.maximum(m_T, part.amax(dim=1))
            # The old sum is relative to the old maximum, so it is rescaled before the chunk's is added (section 3).
            l_T.mul_(torch.exp(m_T - higher_T)).add_((part - higher_T[:, None]).exp_().sum(dim=1))
            m_T = higher_T
        # The raw logit: m + log l is the log-sum-exp of raw logits too, since the maximum has been added back.
        target_T = logits_TV.gather(1, targets_T[:, None])[:, 0].to(self.wide)
        torch.sub(m_T + l_T.log_(), target_T, out=loss_T)
