"""How the denoiser is trained: a few minutes on one processor core, from nothing but a seed."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor

from paceline.families.serving.api.denoiser import Network, Shape
from paceline.families.serving.api.sampler import FIRST_TIME
from paceline.families.serving.ops.denoise.images import draw_images
from paceline.families.serving.ops.denoise.network import initialise, write

STEPS, BATCH, RATE, SEED = 4000, 128, 2e-3, 1
WARM_UP_STEPS, LOG_EVERY = 100, 100
AVERAGE_OVER = 0.998
"""Weights that are kept are an average that forgets with this factor a step."""


def train(weights: Path, log: Path, *, steps: int = STEPS, seed: int = SEED) -> None:
    """Train a denoiser; write its weights, and its loss as it went: the mean squared error of noise of variance 1."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    network = Network(Shape())
    initialise(network, generator)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    average = {name: weight.detach().clone() for name, weight in network.state_dict().items()}
    began, losses = time.monotonic(), []
    with log.open("w") as lines:
        for step in range(1, steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(
                    step / WARM_UP_STEPS, 0.5 * (1 + math.cos(math.pi * step / steps)) + 1e-3
                )
            losses.append(_learn(network, optimizer, generator))
            kept = min(AVERAGE_OVER, step / (step + 10))
            for name, weight in network.state_dict().items():
                average[name].lerp_(weight, 1 - kept)
            if step % LOG_EVERY == 0 or step == steps:
                mean, elapsed_s = sum(losses) / len(losses), time.monotonic() - began
                lines.write(
                    json.dumps({"step": step, "loss": round(mean, 5), "elapsed_s": round(elapsed_s, 1)})
                    + "\n"
                )
                lines.flush()
                losses.clear()
    network.load_state_dict(average)
    write(weights, network, {"seed": seed, "steps": steps, "images_per_step": BATCH})


def _learn(network: Network, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> float:
    """Take one step and return its loss."""
    images_BSS = draw_images(BATCH, network.shape.side, generator)
    time_B11 = FIRST_TIME * torch.rand(BATCH, 1, 1, generator=generator)
    noise_BSS = torch.randn(images_BSS.shape, generator=generator)
    angle_B11 = math.pi * time_B11 / 2
    said_BSS: Tensor = network(angle_B11.cos() * images_BSS + angle_B11.sin() * noise_BSS, time_B11)
    loss = (said_BSS - noise_BSS).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
