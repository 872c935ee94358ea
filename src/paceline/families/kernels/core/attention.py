"""Attention in float64, by which attention of any kind is judged, and how its inputs vary."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.families.kernels.core.operators import Scaling

SHARPNESS = 2.0
"""Standard deviation of queries: scores spread by two units, so that single keys matter."""

SCALINGS = (
    Scaling(inputs=((2, 1),), outputs=(0,)),
    Scaling(inputs=((0, 1), (1, -1)), outputs=()),
)
"""Values scale the output; queries and keys may be scaled against each other."""


def attend(
    q_HTD: Tensor, k_GSD: Tensor, v_GSD: Tensor, *, causal: bool, rounded: torch.dtype | None = None
) -> Tensor:
    """Attend with scores of d^-1/2 · q·k; H heads share G key heads in turn. Softmax weights may be rounded."""
    share = q_HTD.shape[0] // k_GSD.shape[0]
    outputs = []
    # Head by head: float64 scores of all heads at once would need heads times as much memory.
    for head in range(q_HTD.shape[0]):
        group = head // share
        scores_TS = q_HTD[head] @ k_GSD[group].T * q_HTD.shape[-1] ** -0.5
        if causal:
            size_t, size_s = scores_TS.shape
            hidden = torch.ones(size_t, size_s, dtype=torch.bool, device=scores_TS.device).triu(
                # Aligned at the end: queries are the last tokens of what the keys hold.
                size_s - size_t + 1
            )
            scores_TS = scores_TS.masked_fill(hidden, float("-inf"))
        weights_TS = torch.softmax(scores_TS, dim=-1)
        if rounded is not None:
            # As fused kernels do before the second product, so that the tolerance drawn from this includes that error.
            weights_TS = weights_TS.to(rounded).to(weights_TS.dtype)
        outputs.append(weights_TS @ v_GSD[group])
    return torch.stack(outputs)
