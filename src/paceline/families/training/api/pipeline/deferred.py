"""Linear layers whose backward gives the input's gradient at once and the weight's when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Pending = tuple[Tensor, Tensor, Tensor]
"""A weight (out, in), the layer's input and its output's gradient, rows flat."""


class WeightGradients:
    """Collects what weights' gradients need, while ``defer`` is on, and computes them later."""

    def __init__(self) -> None:
        self.defer = False
        self._pending: list[Pending] = []

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return x·Wᵀ; x (…, in), W (out, in)."""
        if not self.defer:
            return functional.linear(x, weight)
        apply: Callable[..., Tensor] = _Deferred.apply
        return apply(x, weight, self._defer)

    def attach(self, model: nn.Module) -> None:
        """Let the linear layers of a model, which have no bias, compute through this."""
        for module in model.modules():
            if isinstance(module, nn.Linear):
                # On instances: layers keep their class, parameters and names, so shares and checkpoints do not change.
                module.forward = partial(_forward, self, module)  # type: ignore[method-assign]  # this instance alone

    def _defer(self, pending: Pending) -> None:
        self._pending.append(pending)

    def take(self) -> list[Pending]:
        """Return what has come up since the last call, and forget it."""
        # Taken after each I, so that what is pending belongs to one microbatch of one stage.
        found, self._pending = self._pending, []
        return found


def _forward(gradients: WeightGradients, module: nn.Linear, x: Tensor) -> Tensor:
    return gradients.linear(x, module.weight)


def accumulate(pending: list[Pending]) -> None:
    """Add gᵀ·x, (out, in), to the gradient of each weight: W of Qi et al. (ICLR 2024), section 2.

    Args:
        pending: See ``Pending``; x has shape (rows, in), g (rows, out).
    """
    with torch.no_grad():
        for weight, x, g in pending:
            if weight.grad is None:
                weight.grad = g.T @ x
            else:
                # Added in place, without a temporary of the weight's size;
                # microbatches add up in the order of their W's.
                weight.grad.addmm_(g.T, x)


class _Deferred(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, defer: Callable[[Pending], None]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.defer = defer
        return functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (g,) = gradients
        x, weight = ctx.saved_tensors
        # x and g are all that W needs: the rest of the graph is freed by I.
        ctx.defer((weight, x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])))
        # No gradient for the weight here, so autograd leaves weight.grad alone until accumulate().
        return g @ weight, None, None
