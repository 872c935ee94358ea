"""Sizes of the embedded models, read from the headers of their files; free of torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from paceline.families.reasoning.core.planning.naming import MODELS

CORE = Path(__file__).parents[1]
WEIGHTS = CORE / "reasoner" / "weights"
JUDGE = CORE / "judge.json"
LENGTH_BYTES = 8
METADATA = "__metadata__"


@cache
def header_of(name: str) -> Mapping[str, Any]:
    """Return the header of an embedded model's file in the safetensors format: tensors, and text under its metadata.

    Raises:
        LookupError: There is no embedded model of that name.
    """
    if name not in MODELS:
        raise LookupError(f"'{name}' is none of the embedded models: {', '.join(MODELS)}")
    path = WEIGHTS / f"{name}.safetensors"
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        header = json.loads(file.read(length))
    assert isinstance(header, dict)
    return header


def num_parameters(name: str) -> int:
    """Return how many numbers an embedded model has.

    Raises:
        LookupError: There is no embedded model of that name.
    """
    return sum(prod(tensor["shape"]) for key, tensor in header_of(name).items() if key != METADATA)


def num_layers(name: str) -> int:
    """Return how many layers an embedded model has.

    Raises:
        LookupError: There is no embedded model of that name.
    """
    return int(header_of(name)[METADATA]["layers"])


@cache
def num_judge_parameters() -> int:
    """Return how many numbers the embedded judge of pairs of traces has."""

    def count(part: Any) -> int:
        if isinstance(part, Mapping):
            return sum(map(count, part.values()))
        return sum(map(count, part)) if isinstance(part, list) else 1

    return count(json.loads(JUDGE.read_text(encoding="utf-8"))["weights"])
