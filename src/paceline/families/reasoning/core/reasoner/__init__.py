"""The embedded reasoner: two small transformers, trained here on procedural problems, that need no download."""

from __future__ import annotations

from pathlib import Path

import torch

from paceline.families.reasoning.core.reasoner.engine import Reasoner
from paceline.families.reasoning.core.reasoner.weights import read

WEIGHTS = Path(__file__).parent / "weights"
NAMES = ("strong", "weak")

__all__ = ["NAMES", "Reasoner", "load", "weights_path"]


def load(name: str, dtype: torch.dtype = torch.float64) -> Reasoner:
    """Return a kept reasoner; only at float64 do batches of any shape give the same tokens.

    Raises:
        ValueError: There is none of this name, or its file is malformed.
    """
    network, weights = read(weights_path(name), dtype)
    return Reasoner(network, f"{name}-{weights.digest}")


def weights_path(name: str) -> Path:
    """Return where a kept reasoner's weights are; its training log lies beside them.

    Raises:
        ValueError: There is none of this name.
    """
    if name not in NAMES:
        raise ValueError(f"no reasoner '{name}'; there are: {', '.join(NAMES)}")
    return WEIGHTS / f"{name}.safetensors"
