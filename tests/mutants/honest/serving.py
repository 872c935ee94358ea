"""Honest serving that looks unusual: tables that are made when they are first needed, work in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from paceline.baselines.serving.sequential_denoising import whole_step
from paceline.baselines.serving.sequential_operators import SequentialOperators
from torch import Tensor

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept
from paceline.families.serving.api.denoising import Comm, Setting
from paceline.families.serving.api.overlapping import Given, NanoBatch
from paceline.families.serving.api.speculating import Simulator


@technique(
    name="side-by-side-cache",
    family="serving",
    implements=("cache",),
    summary="keeps keys and values in one tensor, heads first",
)
class SideBySideCache:
    """Another layout of the same numbers."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return both in one tensor."""
        return {"both": torch.cat(model.layers[layer].keys_values(x_B1D), -1).half()}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return its halves."""
        keys, values = kept[layer]["both"].float().chunk(2, dim=-1)
        return keys, values


@technique(
    name="words-it-by-twos",
    family="serving",
    implements=("decode",),
    summary="asks for two tokens before it hands out any",
)
class WordsItByTwos:
    """Hands out what it was told, a little later."""

    def decode(self, simulator: Simulator) -> None:
        """Hand out two at once."""
        answer: list[int] = []
        waiting: list[int] = []
        while len(answer) < simulator.given.num_tokens:
            simulator.check(answer)
            told = simulator.wait().told
            assert told is not None
            answer += told
            waiting += told
            if len(waiting) > 1 or len(answer) >= simulator.given.num_tokens:
                simulator.deliver(waiting)
                waiting = []


@technique(
    name="halves-of-the-images",
    family="serving",
    implements=("denoise",),
    summary="rank 0 denoises one half of the images to the end, then the other",
)
class HalvesOfTheImages:
    """Smaller batches, the same arithmetic."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        self._setting = setting

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Compute both halves on rank 0."""
        if self._setting.rank > 0:
            return None
        done = []
        for half in images_BSS.chunk(2):
            for step in range(self._setting.num_steps):
                half = whole_step(self._setting, half, step, step + 1)  # noqa: PLW2901 - a step moves the images on
            done.append(half)
        return torch.cat(done)


@technique(
    name="told-backwards",
    family="serving",
    implements=("overlap",),
    summary="the sequential order, written down from its end, computed when it is first asked for",
)
class ToldBackwards:
    """An order is a set of begins, however it is listed."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return the nano-batches, the last one first."""
        return [replace(b) for b in reversed(SequentialOperators().order(given))]
