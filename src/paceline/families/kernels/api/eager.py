"""Each operation by PyTorch's own operators: what ``torch-eager`` runs and ``torch-compile`` compiles."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from paceline.families.kernels.api import float8
from paceline.families.kernels.api.problem import Problem, UnsupportedError


class Eager:
    """PyTorch's operators, writing into the given output where they can and copying once where they cannot.

    Each method has the name of an operation, and takes its inputs and then its outputs; capitals are their axes.

    Args:
        problem: The operation and its point.

    Raises:
        UnsupportedError: The device lacks an operator that the operation needs.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        missing: Callable[[torch.device], str | None] | None = getattr(self.function, "missing", None)
        reason = missing(problem.device) if missing is not None else None
        if reason is not None:
            raise UnsupportedError(reason)

    @property
    def function(self) -> Callable[..., Any]:
        """The function of the problem's operation."""
        found: Callable[..., Any] = getattr(self, self.problem.operation)
        return found

    def gemm(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Multiply: C (M, N) = A (M, K) · B (K, N), of one dtype."""
        torch.mm(a_MK, b_KN, out=c_MN)

    def scaled_gemm(self, a_MK: Tensor, b_NK: Tensor, scale_a: Tensor, scale_b: Tensor, c_MN: Tensor) -> None:
        """Multiply float8 factors and scale: C (M, N) = scale_a · scale_b · A (M, K) · Bᵀ, as ``float8.product``."""
        float8.product(a_MK, b_NK, scale_a, scale_b, c_MN)

    scaled_gemm.missing = float8.missing  # type: ignore[attr-defined]  # what a device lacks for it

    def grouped_gemm(self, x_TK: Tensor, offsets: Tensor, w_EKN: Tensor, y_TN: Tensor) -> None:
        """Multiply each expert's rows: Y (T, N) from X (T, K) and W (E, K, N); E + 1 int64 offsets bound the rows."""
        bounds = offsets.tolist()
        for expert, (begin, end) in enumerate(pairwise(bounds)):
            # An expert may have no tokens in a batch.
            if end > begin:
                torch.mm(x_TK[begin:end], w_EKN[expert], out=y_TN[begin:end])

    def dequant_gemm(self, x_MK: Tensor, codes_NK: Tensor, scales_NG: Tensor, y_MN: Tensor) -> None:
        """Expand the weights in memory, then multiply: Y (M, N) from X (M, K), uint8 codes (N, K), scales (N, G)."""
        zero = 2 ** (self.problem.integer("bits") - 1)
        n, k = codes_NK.shape
        # Converted first: codes are unsigned bytes, and subtracting from them would wrap around.
        weight_NK = (codes_NK.to(x_MK.dtype) - zero).view(n, scales_NG.shape[1], -1) * scales_NG[:, :, None]
        torch.mm(x_MK, weight_NK.view(n, k).T, out=y_MN)

    def add_rmsnorm(
        self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor
    ) -> None:
        """Add, then normalise: S = X + residual and Y = RMSNorm(S) · weight, (T, H); ε is 1e-6."""
        torch.add(x_TH, residual_TH, out=s_TH)
        # Of the rounded sum, which is what a caller reads from ``s``. The operator has no ``out``.
        y_TH.copy_(functional.rms_norm(s_TH, weight_H.shape, weight_H, eps=1e-6))

    def cross_entropy(self, logits_TV: Tensor, targets_T: Tensor, loss_T: Tensor) -> None:
        """Compute the loss (T,) of every token from logits (T, V) and int64 targets (T,)."""
        # In the loss's dtype: log-sum-exp minus logit cancels, which 16 bits cannot afford.
        loss_T.copy_(functional.cross_entropy(logits_TV.to(loss_T.dtype), targets_T, reduction="none"))

    def lm_head_loss(
        self,
        hidden_TH: Tensor,
        weight_VH: Tensor,
        targets_T: Tensor,
        scale: Tensor,
        loss: Tensor,
        grad_hidden_TH: Tensor,
        grad_weight_VH: Tensor,
    ) -> None:
        """Let autograd keep all logits (T, V); the loss and its gradients (T, H) and (V, H) are times ``scale``."""
        # Autograd keeps the logits of all tokens until the gradients are there: the memory that chunks avoid.
        with torch.enable_grad():
            hidden = hidden_TH.detach().requires_grad_()
            weight = weight_VH.detach().requires_grad_()
            logits_TV = (hidden @ weight.T).to(scale.dtype)
            value = functional.cross_entropy(logits_TV, targets_T) * scale
            grad_h, grad_w = torch.autograd.grad(value, (hidden, weight))
        loss.copy_(value.detach())
        grad_hidden_TH.copy_(grad_h)
        grad_weight_VH.copy_(grad_w)

    def attention_prefill(self, q_BHTD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor, out_BHTD: Tensor) -> None:
        """Call scaled-dot-product attention, causal: q and out (B, H, T, D), k and v (B, G, T, D)."""
        out_BHTD.copy_(
            functional.scaled_dot_product_attention(q_BHTD, k_BGTD, v_BGTD, is_causal=True, enable_gqa=True)
        )

    def attention_decode(
        self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, offsets: Tensor, out_BHD: Tensor
    ) -> None:
        """Call scaled-dot-product attention for each sequence: q and out (B, H, D); k, v (S, G, D); B + 1 offsets."""
        bounds = offsets.tolist()
        for i, (begin, end) in enumerate(pairwise(bounds)):
            k_GSD = k_SGD[begin:end].transpose(0, 1)[None]
            v_GSD = v_SGD[begin:end].transpose(0, 1)[None]
            # One query token, which sees every cached key: no mask.
            q_HTD = q_BHD[i][None, :, None]
            out = functional.scaled_dot_product_attention(q_HTD, k_GSD, v_GSD, enable_gqa=True)
            out_BHD[i].copy_(out[0, :, 0])

    def copy(self, a_N: Tensor, c_N: Tensor) -> None:
        """Copy (N,)."""
        c_N.copy_(a_N)

    def triad(self, a_N: Tensor, b_N: Tensor, c_N: Tensor) -> None:
        """Add the second array, times 3, to the first, (N,), as STREAM's triad does."""
        torch.add(a_N, b_N, alpha=3.0, out=c_N)

    def strided_copy(self, wide: Tensor, packed: Tensor) -> None:
        """Copy the first columns of a wide matrix into a packed one, with as many rows."""
        packed.copy_(wide[:, : packed.shape[1]])
