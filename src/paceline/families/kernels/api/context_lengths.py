"""Lengths of the sequences of a decode batch, free of torch: kernels that plan on the host know them beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SPREADS = ("uniform", "linear", "one-long")


def context_lengths(params: Mapping[str, Any]) -> list[int]:
    """Return the number of cached tokens of each sequence of a decode batch.

    ``uniform``: all have ``context``; ``linear``: from context/batch up to ``context``; ``one-long``: one has
    ``context``, the others a sixteenth of it. Lengths are odd where they are not ``context``, as real ones are.

    Args:
        params: Parameters of the case: ``batch`` sequences, ``context`` tokens in the longest, ``spread``.

    Raises:
        KeyError: One of them is missing.
    """
    batch, longest = int(params["batch"]), int(params["context"])
    spread = str(params["spread"])
    if spread == "uniform":
        return [longest] * batch
    if spread == "linear":
        # An odd number of tokens ends inside a tile of any even size.
        return [max(longest * (i + 1) // batch | 1, 1) for i in range(batch - 1)] + [longest]
    return [longest] + [max(longest // 16 | 1, 1)] * (batch - 1)
