"""What a step costs: a few coefficients, fitted to steps that were measured on a real engine. Free of torch.

A step is described by what its computation is made of (``NAMES``): every name is a sum over the step's pieces of work,
and a step's time is a sum over names with coefficients that are not negative. Relative errors count, so that short
steps are told as well as long ones. Operators' times as functions of tokens and contexts, measured once and composed by
iteration, are Vidur's and APEX's way (Agrawal et al., MLSys 2024; Lin et al., arXiv:2411.17651).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.families.serving.api.costs import Piece

LABEL = "virtual time from measured costs"
NAMES = (
    "steps",
    "seen",
    "tokens",
    "decoding",
    "decode_context",
    "chunks",
    "chunk_attention",
    "chunk_context",
    "ends",
)
"""Steps; requests that the scheduler sees; tokens; requests that decode; these times the longest context among them
(contexts are padded to it); parts of prompts; of each part its tokens times its context; contexts of parts; rows of
which a next token is wanted."""
ROUNDS = 2000
"""Of coordinate descent; nine unknowns need some hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One step of a real engine."""

    pieces: tuple[Piece, ...]
    seconds: float
    seen: int
    """Requests that the scheduler saw."""


def features(pieces: Sequence[Piece], seen: int) -> tuple[float, ...]:
    """Return what a step is made of, in the order of ``NAMES``."""
    # As the engine's batch is made: single tokens attend together, padded to the longest context among them.
    decoding = [begin + 1 for begin, count, _ in pieces if count == 1]
    chunks = [(begin, count) for begin, count, _ in pieces if count > 1]
    return (
        1.0,
        float(seen),
        float(sum(count for _, count, _ in pieces)),
        float(len(decoding)),
        float(len(decoding) * max(decoding, default=0)),
        float(len(chunks)),
        # Scores of a part: each of its tokens against its whole context, masked or not.
        float(sum(count * (begin + count) for begin, count in chunks)),
        float(sum(begin + count for begin, count in chunks)),
        float(sum(ends for _, _, ends in pieces)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """A table of costs.

    Raises:
        ValueError: A coefficient is missing, negative or no number, or all are zero.
    """

    coefficients: Mapping[str, float]
    """Seconds by name."""
    kv_bytes_per_token: int
    """Bytes of keys and values of one token."""
    clock: str
    """Which clock measured."""
    num_steps: int
    """How many steps were measured."""
    error: float
    """Median relative error of steps that the fit has not seen."""
    bias: float
    """Of these, their predicted time over their measured time, minus 1."""

    def __post_init__(self) -> None:
        """Check the coefficients."""
        values = [self.coefficients.get(name, -1.0) for name in NAMES]
        if set(self.coefficients) != set(NAMES) or not all(np.isfinite(v) and v >= 0 for v in values):
            raise ValueError(f"a table of costs has a coefficient >= 0 for each of {', '.join(NAMES)}")
        if not any(values):
            raise ValueError("a step cannot cost nothing")

    def seconds(self, pieces: Sequence[Piece], seen: int) -> float:
        """Return what a step takes, alone on its device."""
        found = features(pieces, seen)
        return sum(self.coefficients[name] * value for name, value in zip(NAMES, found, strict=True))

    def facts(self) -> dict[str, Any]:
        """Return everything for a record."""
        return {
            "label": LABEL,
            "coefficients": dict(self.coefficients),
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "clock": self.clock,
            "num_steps": self.num_steps,
            "error": self.error,
            "bias": self.bias,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Costs:
        """Read what ``facts`` has written."""
        return cls(**{k: v for k, v in facts.items() if k != "label"})


def fit(steps: Sequence[Measured], *, kv_bytes_per_token: int, clock: str) -> Costs:
    """Fit costs to measured steps; every fourth one judges a fit of the others.

    Args:
        steps: At least four times as many as there are names.
        kv_bytes_per_token: Of the engine's model.
        clock: Which clock measured.

    Raises:
        ValueError: There are too few steps.
    """
    if len(steps) < 4 * len(NAMES):
        raise ValueError(f"{len(steps)} measured steps do not determine {len(NAMES)} costs")
    rows = np.array([features(s.pieces, s.seen) for s in steps])
    seconds = np.array([s.seconds for s in steps])
    # The stated error is of steps that the fit has not seen; the table itself is then fitted to all.
    judging = np.arange(len(steps)) % 4 == 3
    partial = rows[judging] @ _solve(rows[~judging], seconds[~judging])
    found = _solve(rows, seconds)
    return Costs(
        coefficients={name: float(value) for name, value in zip(NAMES, found, strict=True)},
        kv_bytes_per_token=kv_bytes_per_token,
        clock=clock,
        num_steps=len(steps),
        error=float(np.median(np.abs(partial / seconds[judging] - 1.0))),
        bias=float(partial.sum() / seconds[judging].sum() - 1.0),
    )


def _solve(rows: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return coefficients >= 0 of least relative error, after steps that something else disturbed were left out."""
    kept = np.ones(len(seconds), dtype=bool)
    found = np.zeros(rows.shape[1])
    for _ in range(3):
        found = _descend(rows[kept] / seconds[kept, None])
        off = seconds / np.maximum(rows @ found, 1e-12)
        # One-sided, since a disturbance only lengthens a step; three rounds, as the first fit is pulled by what it
        # should leave out.
        kept = off < 3.0 * np.median(off)
    scale = float((seconds[kept]).sum() / (rows[kept] @ found).sum())
    return found * scale  # totals are what makespans are made of; relative errors alone favour short steps


def _descend(relative: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise |relative · x − 1|² over x >= 0, one coordinate after another."""
    # Columns of unit size: contexts are thousands of times the count of steps, and descent would crawl.
    widths = np.maximum(np.sqrt((relative**2).mean(0)), 1e-30)
    scaled = relative / widths
    square, target = scaled.T @ scaled, scaled.sum(0)
    x = np.zeros(len(widths))
    for _ in range(ROUNDS):
        before = x.copy()
        for place in range(len(x)):
            if square[place, place] > 0:
                slope = target[place] - square[place] @ x
                # The exact minimum along one coordinate, cut at 0: no cost is negative, and the problem is convex, so
                # this converges.
                x[place] = max(0.0, x[place] + slope / square[place, place])
        if np.abs(x - before).max() < 1e-10:
            break
    result: NDArray[np.float64] = x / widths
    return result
