"""What all peers share, from what they are told."""

from __future__ import annotations

from typing import Any

import torch

from paceline.families.training.api.sizes import size_of
from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.setting import Setting


def setting_of(config: dict[str, Any], device: torch.device) -> Setting:
    """Return what all peers share, from what they are told; a step has sequences for the newcomer, too."""
    params = config["params"]
    return Setting(
        corpus=corpus.load(str(params["data"])),
        size=size_of(params),
        context=int(params["context"]),
        batch_size=rows_of(params) * (int(params["ranks"]) + 1),
        steps=int(params["steps"]),
        optimizer=str(params["optimizer"]),
        peak_rate=float(params["learning_rate"]),
        warmup_steps=int(params["warmup_steps"]),
        device=device,
        model_seed=config["model_seed"],
        data_seed=config["data_seed"],
        shared_seed=0,
    )


def rows_of(params: dict[str, Any]) -> int:
    """Return the sequences that a peer reads in a step."""
    return int(params["batch"]) // int(params["ranks"])
