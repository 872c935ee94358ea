"""Where a cache runs: fenced, first reading texts, then in another process with nothing but what it has kept."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from paceline.families.reasoning.core.reasoner import weights_path
from paceline.families.reasoning.core.reasoner.network import Network
from paceline.families.reasoning.core.reasoner.weights import read as read_weights
from paceline.families.serving.api.caching import Cache
from paceline.families.serving.core.child import Make, main
from paceline.families.serving.ops.cache.flops import rebuild_flops
from paceline.families.serving.ops.cache.reading import Moment, WrongCacheError, read, wrong_moment
from paceline.families.serving.ops.cache.texts import draw_texts
from paceline.worker.fences.guard import Guard
from paceline.worker.ranks.session import CaseError

NUM_SHOWN = 3
"""Positions whose keys and values another process makes again; which ones, a technique cannot know."""


def network_of(checkpoint: str) -> Network:
    """Return a trained model at float32."""
    return read_weights(weights_path(checkpoint), torch.float32)[0]


def play(make: Make, guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let it keep what it likes of texts, or make keys and values of that again."""
    return make_again(make, guard, asked) if asked["again"] else read_over(make, guard, asked)


def read_over(make: Callable[[], Cache], guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Read texts, and leave what was kept at some positions in the file ``asked["file"]``."""
    network = network_of(asked["checkpoint"])
    texts = draw_texts(asked["seed"], asked["texts"], network.shape.context)
    length = texts.tokens_BT.shape[1]
    shown = random.SystemRandom().sample(range(length // 2, length - 1), min(NUM_SHOWN, length // 2 - 1))
    with guard.watch():
        try:
            reading = read(network, texts, make, bits=asked["bits"], shown=shown)
        except WrongCacheError as error:
            raise CaseError("incorrect", str(error)) from error
    torch.save([asdict(m) for m in reading.moments], asked["file"])
    counted_BT = texts.counted_BT[:, 1:]
    return {
        "losses": [float(x) for x in reading.losses_BT[counted_BT]],
        "bytes_per_token": reading.bytes_per_token,
    }


def make_again(make: Callable[[], Cache], guard: Guard, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Make keys and values of what was kept alone, and say where they are others."""
    moments = [Moment(**m) for m in torch.load(Path(asked["file"]), weights_only=True)]
    network = network_of(asked["checkpoint"])
    with guard.watch():
        problem = wrong_moment(network, moments, make, bits=asked["bits"])
    flops = None if problem else rebuild_flops(network, moments, make, bits=asked["bits"])
    return {"problem": problem, "moments": len(moments), "rebuild_flops": flops}


if __name__ == "__main__":
    sys.exit(main(play, sealed=("paceline.families.reasoning",)))
