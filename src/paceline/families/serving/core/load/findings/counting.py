"""Which claims on percentiles a number of requests allows: MLPerf's rule of early stopping, and Wilson's interval."""

from __future__ import annotations

import math

CONFIDENCE = 0.99
Z_95 = 1.959963984540054


def requests_needed(misses: int, *, share: float = 0.99, confidence: float = CONFIDENCE) -> int:
    """Return how many requests are needed to say that ``share`` of all meet a limit, if ``misses`` do not.

    The least n with which so few misses have at most 1 − ``confidence`` probability if the true share is ``share``
    (MLPerf Inference, early stopping: 459, 662, 838, … for the 99th percentile).

    Raises:
        ValueError: Shares are not inside of (0, 1), or misses are negative.
    """
    if misses < 0 or not 0 < share < 1 or not 0 < confidence < 1:
        raise ValueError("misses are 0 or more; share and confidence lie between 0 and 1")
    # More requests than misses at least; the probability falls with their number, so doubling and bisection find the
    # first.
    low, high = misses + 1, 2 * (misses + 1)
    while _at_most(misses, high, 1 - share) > 1 - confidence:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if _at_most(misses, middle, 1 - share) > 1 - confidence:
            low = middle + 1
        else:
            high = middle
    return low


def may_claim(requests: int, misses: int, *, share: float = 0.99, confidence: float = CONFIDENCE) -> bool:
    """Return whether so many requests with so many misses allow to say that a share meets a limit."""
    return requests >= requests_needed(misses, share=share, confidence=confidence)


def _at_most(misses: int, trials: int, probability: float) -> float:
    """Return the probability of at most so many misses, by sums of logarithms."""
    log_p, log_q = math.log(probability), math.log1p(-probability)
    terms = [
        # Logarithms: binomial coefficients of thousands do not fit into floating-point numbers.
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * log_p
        + (trials - k) * log_q
        for k in range(min(misses, trials) + 1)
    ]
    return math.fsum(math.exp(t) for t in terms)


def wilson(successes: float, trials: float, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's interval of a share; counts may be scaled to what they say."""
    if trials == 0:
        return 0.0, 1.0
    share = successes / trials
    # Wilson's and not the normal interval, which has no width at shares of 0 and 1.
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)
