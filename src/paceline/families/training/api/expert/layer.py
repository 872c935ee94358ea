"""A layer of the model with a gate and experts in the place of its perceptron, and the plain way to compute it.

Shape suffixes: G sequences, T positions, D width, F hidden width of an expert, N tokens of one expert.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.families.training.api.expert.routing import Routing, closest, forced, route, slots
from paceline.families.training.api.model import Layer
from paceline.families.training.api.sizes import Size

Mixture = Callable[[Tensor, Routing], Tensor]
"""Normalised tokens, (G, T, D), and where they go, to what their experts add, (G, T, D)."""


class Expert(nn.Module):
    """A two-layer perceptron; both products are (F, D), so that a share of the hidden width is a run of memory."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(4 * width, width))
        self.down = nn.Parameter(torch.empty(4 * width, width))

    def forward(self, x_ND: Tensor) -> Tensor:
        """Return what the expert makes of its tokens."""
        found: Tensor = functional.gelu(x_ND @ self.up.T) @ self.down
        return found


class ExpertLayer(Layer):
    """Attention, then the experts that a gate chose.

    Args:
        size: Dimensions of the model.
        num_experts: E.
        top_k: Experts of a token.
        capacity_factor: Slots of all experts together, over what all tokens would need.
    """

    def __init__(self, size: Size, *, num_experts: int, top_k: int, capacity_factor: float) -> None:
        super().__init__(size)
        # The dense perceptron of the base class: left in, its parameters would be counted, trained and averaged.
        del self.up, self.down
        self.top_k, self.capacity_factor = top_k, capacity_factor
        self.gate = nn.Linear(size.width, num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(size.width) for _ in range(num_experts))
        self.mixture: Mixture = self.plain_mixture
        """What becomes of tokens; ranks that share experts put their own in its place."""
        self.closest = math.inf
        """In the last forward: the least distance of two logits whose order decided where a token went."""
        self.chosen_GT: Tensor | None = None
        """Experts that a trace gives every token instead of the gate, which only weighs them."""

    @property
    def num_experts(self) -> int:
        """E."""
        return len(self.experts)

    def capacity(self, length: int) -> int:
        """Return an expert's slots for a sequence of some length."""
        return slots(self.capacity_factor, self.top_k, length, self.num_experts)

    def perceptron(self, h_GTD: Tensor) -> Tensor:
        """Return what the chosen experts add."""
        logits_GTE = self.gate(h_GTD)
        if self.chosen_GT is not None:
            return self.mixture(h_GTD, forced(logits_GTE, self.chosen_GT))
        # For proofs: where two logits nearly tie, rounding decides a route, and no oracle can hold it.
        self.closest = closest(logits_GTE, self.top_k)
        return self.mixture(h_GTD, route(logits_GTE, self.top_k, self.capacity(h_GTD.shape[1])))

    def plain_mixture(self, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Return the same in one process: expert after expert picks its tokens."""
        added_GTD = torch.zeros_like(h_GTD)
        for number, expert in enumerate(self.experts):
            mine = (routing.experts_GTk == number) & routing.kept_GTk
            sequence, position, choice = mine.nonzero(as_tuple=True)
            weight_N1 = routing.weights_GTk[sequence, position, choice][:, None]
            made_ND = weight_N1 * expert(h_GTD[sequence, position])
            # accumulate: with top_k > 1 other experts add to the same token.
            added_GTD = added_GTD.index_put((sequence, position), made_ND, accumulate=True)
        return added_GTD


def expert_layers(model: nn.Module) -> list[ExpertLayer]:
    """Return a model's layers with experts, the first one first."""
    return [m for m in model.modules() if isinstance(m, ExpertLayer)]
