"""The trained denoiser's weights: drawn, kept in a file, and read."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from paceline.families.reasoning.core.reasoner.weights import pack, unpack
from paceline.families.serving.api.denoiser import Network, Shape

WEIGHTS = Path(__file__).parent / "weights" / "denoiser.safetensors"


def initialise(network: Network, generator: torch.Generator) -> None:
    """Draw the weights; what is added to the stream starts at zero, so that every layer begins as the identity."""
    for name, weight in network.named_parameters():
        if weight.dim() == 1 or name.rpartition(".")[0].endswith(("mix", "down", "by_time")):
            nn.init.zeros_(weight)
        else:
            nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[1]), generator=generator)


def write(path: Path, network: Network, provenance: dict[str, object]) -> None:
    """Keep a network: its weights, its shape, and where it comes from."""
    described = {**provenance, **asdict(network.shape)}
    path.write_bytes(pack(network.state_dict(), {key: str(value) for key, value in described.items()}))


def read(dtype: torch.dtype, path: Path = WEIGHTS) -> tuple[Network, str]:
    """Return the kept network at a precision, and the first digits of its file's SHA-256.

    Raises:
        ValueError: The file is malformed, or its tensors do not fit the shape that it states.
    """
    kept = unpack(path.read_bytes())
    try:
        network = Network(Shape(**{name: int(kept.metadata[name]) for name in Shape.__slots__}))
        network.load_state_dict(dict(kept.tensors))
    except (KeyError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{path.name}: no denoiser of the shape that its metadata states: {error}"
        ) from error
    return network.to(dtype).requires_grad_(False).eval(), kept.digest
