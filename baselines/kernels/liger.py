"""Kernels of Liger Kernel (github.com/linkedin/Liger-Kernel), as training frameworks call them.

Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training", arXiv 2410.10989, 2024.

Algorithm:
- ``add_rmsnorm``: ``fused_add_rms_norm``, one Triton program a row, by the ``llama`` rule: the normed row is rounded to
  the input's dtype before it is scaled.
- ``cross_entropy``: ``liger_cross_entropy`` without a gradient, one program a row, chunks of the vocabulary.
- ``lm_head_loss``: ``liger_fused_linear_cross_entropy``: logits of a chunk of tokens at a time, whose gradient is
  formed in their own memory.

Cost: the library's. The norm's kernel writes into the given outputs; losses and gradients are copied once, since the
library returns new tensors, and the head's gradients are multiplied by ``scale`` in a pass of their own. Its loss
counts the tokens to ignore on the host, so a call waits for the device.
Limits: a token's loss is rounded to the logits' dtype, so ``cross_entropy`` runs in float32 alone. Not run: needs cuda.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem, UnsupportedError

EPSILON = 1e-6
LLAMA = 0
"""The library's number of the rounding rule."""


@technique(
    name="liger",
    family="kernels",
    implements=("add_rmsnorm", "cross_entropy", "lm_head_loss"),
    summary="Triton kernels of Liger Kernel",
    requires={"devices": ("cuda",), "packages": ("liger_kernel>=0.8", "triton")},
    properties={"compiles": "accelerator"},
)
class Liger:
    """T tokens, H hidden, V vocabulary."""

    def __init__(self, problem: Problem) -> None:
        self.function: Callable[..., None] = getattr(self, problem.operation)
        # Here and not above: a process that computes one operation does not import the others.
        if problem.operation == "add_rmsnorm":
            from liger_kernel.ops.fused_add_rms_norm import (  # noqa: PLC0415 - as said above
                _fused_add_rms_norm_forward_kernel,
                calculate_settings,
            )

            self.kernel = _fused_add_rms_norm_forward_kernel
            self.settings = calculate_settings(problem.integer("hidden"))
            self.deviations = problem.empty(problem.integer("tokens"), dtype=torch.float32)
        elif problem.operation == "cross_entropy":
            from liger_kernel.transformers.functional import liger_cross_entropy  # noqa: PLC0415 - as said above

            if problem.dtype != torch.float32:
                raise UnsupportedError("rounds a token's loss to the dtype of the logits; supports float32")
            self.loss = liger_cross_entropy
        else:
            from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy  # noqa: PLC0415 - as said above

            self.loss = liger_fused_linear_cross_entropy

    def run(self, *tensors: Tensor) -> None:
        """Call the library's kernel of the problem's operation."""
        self.function(*tensors)

    def add_rmsnorm(
        self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor
    ) -> None:
        """Add and normalise (T, H); launched as the library's wrapper does, with the outputs that are given."""
        tokens, hidden = x_TH.shape
        block, warps = self.settings
        self.kernel[(tokens,)](
            y_TH,
            hidden,
            s_TH,
            hidden,
            x_TH,
            hidden,
            residual_TH,
            hidden,
            weight_H,
            1,
            self.deviations,
            1,
            hidden,
            EPSILON,
            0.0,
            LLAMA,
            BLOCK_SIZE=block,
            num_warps=warps,
            num_stages=2,
        )

    def cross_entropy(self, logits_TV: Tensor, targets_T: Tensor, loss_T: Tensor) -> None:
        """Compute the loss (T,) of every token from logits (T, V)."""
        with torch.no_grad():
            loss_T.copy_(self.loss(logits_TV, targets_T, reduction="none"))

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
        """Compute the mean loss, times ``scale``, and its gradients (T, H) and (V, H)."""
        with torch.enable_grad():
            hidden = hidden_TH.detach().requires_grad_()
            weight = weight_VH.detach().requires_grad_()
            value = self.loss(hidden, weight, targets_T) * scale
            grad_h, grad_w = torch.autograd.grad(value, (hidden, weight))
        loss.copy_(value.detach())
        grad_hidden_TH.copy_(grad_h)
        grad_weight_VH.copy_(grad_w)
