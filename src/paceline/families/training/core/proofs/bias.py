"""Whether the mean of what a lossy technique's steps give is the exact step, by the spread of their errors.

A step's error is what its weights differ by from one process's, which took the exact step of plain SGD from the same
weights. Where codes are unbiased, the errors of two steps have an inner product of mean zero, whatever single elements
do: a code that an element gets once in a thousand steps has no standard error of its own that three steps could be
counted in. Otherwise the mean over all pairs of T steps is the squared length of the mean error. That is the one-sample
statistic of Chen and Qin, "A two-sample test for high-dimensional data with applications to gene-set testing" (Annals
of Statistics 38, 2010). Its standard error, √(2·tr Σ²/(T·(T − 1))), comes from inner products of errors about their
mean, so that no bias excuses itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

DRAWS = 64
RATE = 0.005
"""Learning rate: noise adds up over so many steps, and all shall begin from nearly the same weights. At ten times as
much TernGrad walks away from where it began, and one that sums instead of averaging comes near to passing."""
MOST_ERRORS = 25.0
"""Standard errors that the statistic may reach. The squared length of a normal mean error is a weighted sum of χ²:
for any weights at all it exceeds its mean by √(2x) + √2·x standard errors with a chance of at most e^−x (Laurent and
Massart, "Adaptive estimation of a quadratic functional by model selection", Annals of Statistics 28, 2000, lemma 1).
25 of them are x = 14: at most one false alarm in a million proofs. Where many elements err alike, six would do."""
ROUNDING = 2e-5
"""Share of a step that the order of float32 sums may move its mean."""


def problem(errors: Sequence[Tensor], lengths: Sequence[float]) -> str | None:
    """Say that the mean step is not the exact one, or None.

    Args:
        errors: Of every step, (P,).
        lengths: Of the exact steps.
    """
    if not all(bool(torch.isfinite(e).all()) for e in errors):
        return "weights are not finite"
    square, spread = statistic(torch.stack(list(errors)))
    step = sum(lengths) / len(lengths)
    # The larger of both: where codes hardly err there is no spread, and the order of float32 sums is all there is.
    if square <= max(MOST_ERRORS * spread, (ROUNDING * step) ** 2):
        return None
    share, errors_of_it = math.sqrt(square) / step, square / max(spread, 1e-300)
    text = f"the mean of {len(errors)} steps is {share:.2g} of a step beside one process on the whole batch"
    return f"{text}, {min(errors_of_it, 1e6):.3g} standard errors"


def statistic(errors_TP: Tensor) -> tuple[float, float]:
    """Return the mean inner product of two errors, which estimates the squared length of the bias, and its error."""
    errors_TP = errors_TP.double()
    count = len(errors_TP)
    # Without the diagonal: an error's product with itself is its variance, which would pass for a bias.
    pairs = ~torch.eye(count, dtype=torch.bool, device=errors_TP.device)
    products_TT = errors_TP @ errors_TP.T
    about_TP = errors_TP - errors_TP.mean(dim=0)
    noise = (about_TP @ about_TP.T)[pairs].var()  # about their mean, which centring makes −tr Σ/T
    return float(products_TT[pairs].mean()), math.sqrt(2 * float(noise) / (count * (count - 1)))
