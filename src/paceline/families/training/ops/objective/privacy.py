"""What releases of noisy means reveal: Rényi differential privacy, composed and turned into (ε, δ). Free of torch.

A Gaussian mechanism whose noise is z times its sensitivity has Rényi divergence α/(2z²) at order α (Mironov, 2017,
proposition 7), divergences of releases add up, and (α, r) gives ε = r + log((α − 1)/α) − (log δ + log α)/(α − 1)
(Balle et al., 2020, theorem 21). A release without noise has ε = ∞.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

ORDERS = (*(1 + n / 50 for n in range(1, 500)), *range(11, 512), *range(512, 4097, 64))
NEIGHBOURS_SENSITIVITY = 2.0
"""Of a mean of clipped vectors, in units of clip/samples, where one sample is replaced by another."""


def rdp(noise_ratios: Iterable[float], order: float) -> float:
    """Return the Rényi divergence of releases, each with its noise over its sensitivity."""
    return sum(math.inf if ratio <= 0.0 else order / (2.0 * ratio**2) for ratio in noise_ratios)


def epsilon(noise_ratios: Iterable[float], delta: float) -> float:
    """Return the ε at a δ of releases, each with its noise over its sensitivity; 0 where there is none.

    Args:
        noise_ratios: Deviation of each release's noise over what one sample changes.
        delta: Above 0 and below 1.
    """
    ratios = list(noise_ratios)
    if not ratios:
        return 0.0
    once = rdp(ratios, 1.0)
    if math.isinf(once):
        return math.inf
    best: float = min(
        once * order + math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)
        for order in ORDERS
    )
    return max(0.0, best)
