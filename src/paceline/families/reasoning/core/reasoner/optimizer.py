"""Muon for the matrices, AdamW for the rest; AdamW alone needs several times the steps on these problems.

Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024) replaces a matrix's momentum by
the nearest orthogonal matrix, approximately: a quintic Newton-Schulz iteration drives every singular value towards 1.
Matrices of one shape are iterated as one stack.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

MATRIX_RATE = 0.02
OTHER_RATE = 3e-3
MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.95)
WARM_UP_STEPS = 100
QUINTIC = (3.4445, -4.7750, 2.0315)
"""Jordan et al.'s coefficients: steep at 0, and within about 0.7 to 1.2 after five iterations."""
ITERATIONS = 5


class Muon:
    """Momentum, orthogonalised."""

    def __init__(self, matrices: Iterable[nn.Parameter]) -> None:
        self.stacks: defaultdict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        """Parameters of a shape, each with its momentum."""
        for matrix in matrices:
            self.stacks[matrix.shape].append((matrix, torch.zeros_like(matrix)))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every matrix by its gradient, which is used up."""
        for (rows, columns), stack in self.stacks.items():
            ahead = []
            for matrix, momentum in stack:
                assert matrix.grad is not None
                momentum.lerp_(matrix.grad, 1 - MOMENTUM)
                # Nesterov's momentum: the direction looks one step ahead.
                ahead.append(matrix.grad.lerp(momentum, MOMENTUM))
                matrix.grad = None
            # A fused matrix of queries, keys and values is three maps: each is orthogonal for itself.
            parts = rows // columns if rows % columns == 0 and rows // columns == 3 else 1
            directions = orthogonal(torch.stack(ahead).view(-1, rows // parts, columns))
            # Muon's factor: an orthogonal direction has the same spectral norm at every shape, so tall matrices take a
            # larger step.
            scale = math.sqrt(max(1.0, rows / parts / columns))
            for (matrix, _), direction in zip(stack, directions.view(-1, rows, columns), strict=True):
                matrix.sub_(direction, alpha=rate * scale)


def orthogonal(stack: Tensor) -> Tensor:
    """Return nearly orthogonal matrices with the singular vectors of these, (N, rows, columns)."""
    first, third, fifth = QUINTIC
    # On the shorter side, where the square matrices of the iteration are smaller.
    tall = stack.shape[1] > stack.shape[2]
    x = stack.mT if tall else stack
    # The Frobenius norm bounds every singular value by 1, inside of where the iteration converges.
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = first * x + (third * square + fifth * square @ square) @ x
    nearly: Tensor = x.mT if tall else x
    return nearly


class Optimizer:
    """Both, under one schedule: a linear warm-up, then a cosine to zero."""

    def __init__(self, network: nn.Module, num_steps: int) -> None:
        named = dict(network.named_parameters())
        # An embedding's rows are looked up one by one: as a matrix it maps nothing, so orthogonality means nothing for
        # it.
        matrices = {n: p for n, p in named.items() if p.dim() == 2 and not n.startswith("embedding")}
        self.muon = Muon(matrices.values())
        self.adam = torch.optim.AdamW(
            [p for n, p in named.items() if n not in matrices],
            lr=OTHER_RATE,
            betas=ADAM_BETAS,
            weight_decay=0.0,
        )
        self.num_steps = num_steps
        self.done = 0

    def step(self) -> None:
        """Use up the gradients."""
        share = schedule(self.done, self.num_steps)
        self.muon.step(MATRIX_RATE * share)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * share
        self.adam.step()
        self.adam.zero_grad()
        self.done += 1


def schedule(step: int, num_steps: int) -> float:
    """Return the share of the full rate, for steps that count from 0."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    return 0.5 * (1 + math.cos(math.pi * (step - WARM_UP_STEPS) / max(1, num_steps - WARM_UP_STEPS)))
