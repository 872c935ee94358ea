"""Sizes of the reference engine's models, whose weights are random and drawn from a seed. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST_TOKEN = 4
"""Tokens below are special, and in no prompt."""

SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "vocab": 512, "max_context": 2048},
    "small": {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 2, "vocab": 2048, "max_context": 4096},
    "medium": {"layers": 4, "hidden": 512, "heads": 16, "kv_heads": 4, "vocab": 2048, "max_context": 4096},
    "1b": {"layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "vocab": 128256, "max_context": 8192},
    "8b": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "vocab": 128256, "max_context": 8192},
}
"""By name; 1b and 8b have the shapes of Llama 3."""
REAL_SIZES = ("1b", "8b")
"""Those that nobody computes on a few cores."""


def context_of(params: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a point's model knows; None where the point is about somebody else's model."""
    model = params.get("model")
    return None if model is None else SIZES[str(model)]["max_context"]


def model_of(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a point's model as the engine takes it: sizes, dtype, and the seed of its weights."""
    return {**SIZES[str(params["model"])], "dtype": params["dtype"], "seed": seed % 2**31}
