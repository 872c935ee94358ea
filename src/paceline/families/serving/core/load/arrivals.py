"""Instants at which requests arrive, drawn before anything is sent: pure functions of a seed.

All kinds place exactly ``count`` arrivals in ``count / rate`` seconds. A Poisson process of which the number is known
has its instants like a sorted uniform sample (Kingman, Poisson Processes, 1993, section 2.4), so the offered rate is
the asked one and not a draw around it. Gamma gaps of the same shape are scaled alike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CONSTANT, POISSON, GAMMA, RAMP = "constant", "poisson", "gamma", "ramp"
KINDS = (CONSTANT, POISSON, GAMMA, RAMP)

Instants = NDArray[np.float64]


def draw_arrivals(
    kind: str,
    *,
    rate_per_s: float,
    count: int,
    seed: int,
    burstiness: float = 1.0,
    last_rate_per_s: float | None = None,
) -> Instants:
    """Return ``count`` instants in seconds behind the start, ascending.

    Args:
        kind: One of ``KINDS``.
        rate_per_s: Requests a second; of a ramp at its start.
        count: Their number.
        seed: Same seed, same instants.
        burstiness: Of gamma: the squared coefficient of variation of gaps; 1 is Poisson, more is burstier.
        last_rate_per_s: Of a ramp: the rate at its end; it changes linearly, and arrivals are Poisson.

    Raises:
        ValueError: The kind is unknown, or a rate, the count or the burstiness is not positive.
    """
    rates = (rate_per_s, burstiness, rate_per_s if last_rate_per_s is None else last_rate_per_s)
    if count < 1 or not all(np.isfinite(r) and r > 0 for r in rates):
        raise ValueError("rates, burstiness and count of arrivals are positive and finite")
    random = np.random.default_rng(seed)
    seconds = count / rate_per_s
    instants: Instants
    match kind:
        case "constant":
            instants = np.arange(count, dtype=np.float64) / rate_per_s
            return instants
        case "poisson":
            instants = np.sort(random.uniform(0.0, seconds, count))
            return instants
        case "gamma":
            # Shape 1/c and scale c: mean 1, squared coefficient of variation c. One gap more, for the time behind the
            # last arrival.
            gaps = random.gamma(1.0 / burstiness, burstiness, count + 1)
            instants = np.cumsum(gaps)
            # Scaled to the asked duration: the offered rate is then exact, and only the pattern is drawn.
            instants = instants[:count] * (seconds / instants[count])
            return instants
        case "ramp":
            return _ramp(np.sort(random.uniform(0.0, 1.0, count)), count, rate_per_s, rates[2])
    raise ValueError(f"'{kind}' is no kind of arrivals: {', '.join(KINDS)}")


def _ramp(shares: Instants, count: int, first_per_s: float, last_per_s: float) -> Instants:
    """Invert the ramp's cumulative rate: a·t + (b − a)·t²/(2·T) arrivals until t, with T = 2·count/(a + b)."""
    seconds = 2.0 * count / (first_per_s + last_per_s)
    slope = (last_per_s - first_per_s) / seconds
    # Nearly level: the quadratic's solution would divide a difference of equal numbers by almost nothing.
    if abs(slope) * seconds < 1e-9 * first_per_s:
        return shares * seconds
    reached: Instants = (np.sqrt(first_per_s**2 + 2.0 * slope * shares * count) - first_per_s) / slope
    return reached
