"""Exact backpropagation of a language-model head in chunks of tokens: the logits of all tokens never exist at once.

Luo, Li, Zhao and Li, "StreamBP: Memory-Efficient Exact Backpropagation for Long Sequence Training of LLMs",
arXiv 2506.03077, 2025, section 3.2.1 (the head; the paper streams transformer layers too).

Algorithm, for chunk after chunk of tokens (V vocabulary, H hidden):
1. logits = hidden · Wᵀ; loss += Σ logsumexp − target's logit.
2. d = (softmax(logits) − onehot) · scale / tokens, in the logits' own memory.
3. grad_hidden = d · W for the chunk; grad_W += dᵀ · hidden.

Cost: 6 · tokens · H · V operations as without chunks; chunk · V instead of several tokens · V elements of memory.
Limits: small chunks make the products narrow.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="streambp",
    family="kernels",
    implements=("lm_head_loss",),
    summary="the head's loss and gradients in chunks of tokens",
    paper="streambp",
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3.2.1 by the header, not read for this card",
            "code": "github.com/Ledzy/StreamBP: src/streambp/stream_model.py",
        },
        "deviations": (
            "The head alone is streamed; the authors stream the layers of the transformer too.",
            (
                "The gradient of the logits is formed in their own memory; the authors call backward on each "
                "chunk."
            ),
            "Every token counts; the authors leave out padding and weigh a chunk by what is left of it.",
        ),
        "constants": {
            "chunk": {
                "here": 128,
                "authors": "500 positions of every sequence (logits_chunk_size), stream_model.py",
                "official": 500,
                "source": "github.com/Ledzy/StreamBP: src/streambp/stream_model.py",
                "differs": "positions of all sequences together, and vocabularies are smaller",
            },
        },
        "checked_by": ("tests/conformance/test_kernels_conformance.py::test_a_kernel_conforms",),
    },
)
class StreamBP:
    """T tokens, C tokens of a chunk, H hidden, V vocabulary."""

    def __init__(self, problem: Problem, *, chunk: int = 128) -> None:
        self.chunk = chunk
        self.wide = torch.promote_types(problem.dtype, torch.float32)

    def run(
        self,
        hidden_TH: Tensor,
        weight_VH: Tensor,
        targets_T: Tensor,
        scale: Tensor,
        loss: Tensor,
        grad_hidden_TH: Tensor,
        grad_weight_VH: Tensor,
    ) -> None:
        """Compute the loss and both gradients."""
        tokens = hidden_TH.shape[0]
        weight = weight_VH.to(self.wide)
        # Summed over chunks in float32 at least: many small additions would vanish in 16 bits.
        total_VH = grad_weight_VH if grad_weight_VH.dtype == self.wide else torch.empty_like(weight)
        total_VH.zero_()
        loss.zero_()
        for begin in range(0, tokens, self.chunk):
            rows = slice(begin, begin + self.chunk)
            hidden_CH, targets_C1 = hidden_TH[rows].to(self.wide), targets_T[rows, None]
            logits_CV = hidden_CH @ weight.T
            # Softmax and loss do not change by it, and exp cannot overflow.
            logits_CV -= logits_CV.amax(dim=-1, keepdim=True)
            # Before ``exp_``, which overwrites the logits: from here on their memory holds the gradient.
            target_C1 = logits_CV.gather(1, targets_C1)
            d_CV = logits_CV.exp_()
            sum_C1 = d_CV.sum(dim=-1, keepdim=True)
            loss += (sum_C1.log() - target_C1).sum()
            d_CV /= sum_C1
            # Softmax minus one-hot, without a one-hot matrix of V columns.
            d_CV.scatter_add_(1, targets_C1, torch.full_like(sum_C1, -1.0))
            # The loss is a mean over tokens times ``scale``, and so is its gradient.
            d_CV *= scale / tokens
            grad_hidden_TH[rows] = d_CV @ weight
            total_VH.addmm_(d_CV.T, hidden_CH)
        loss *= scale / tokens
        if total_VH is not grad_weight_VH:
            grad_weight_VH.copy_(total_VH)
