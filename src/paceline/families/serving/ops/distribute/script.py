"""Steps of all kinds, drawn from a seed, and what must leave the last layer in each of them.

The engine's own bookkeeping plans them, so that requests come and go, prompts are computed in parts, and blocks are
used again. What a request says is drawn, not computed: a token that is wrong changes nothing behind it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.serving.api.costs import Piece
from paceline.families.serving.api.layers import Shape, Weights
from paceline.families.serving.api.paged import Batch
from paceline.families.serving.core.engine.core import Engine, Held
from paceline.families.serving.core.engine.reference import states
from paceline.families.serving.core.engine.stepper import batch_of, in_order
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.simulation.profiling import Wander, keep_busy, pieces_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """One step."""

    batch: Batch
    pieces: tuple[Piece, ...]
    wanted: tuple[tuple[int, int], ...]
    """Of each of the batch's last rows the request, and the position of the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Steps, and the texts of all requests in them."""

    steps: tuple[Scripted, ...]
    texts: Mapping[int, tuple[int, ...]]


def draw_script(
    shape: Shape,
    engine: Mapping[str, int],
    *,
    num_steps: int,
    longest: int,
    seed: int,
    device: torch.device,
) -> Script:
    """Draw steps; the same ones for the same arguments.

    Args:
        shape: Of the model.
        engine: block_size, num_blocks, max_batch, token_budget.
        num_steps: How many.
        longest: Most tokens that a request has.
        seed: Of everything.
        device: Where batches are.
    """
    rng = random.Random(seed)
    planning = Engine(Wander(rng), lambda work: [], **engine)
    steps: list[Scripted] = []
    there: dict[int, Held] = {}
    for _ in keep_busy(planning, rng, engine, longest=longest, vocab=shape.vocab):
        if len(steps) == num_steps:
            break
        work = planning.begin(0.0)
        if not work:
            continue
        there |= {piece.sequence.number: piece.sequence for piece in work}
        steps.append(
            Scripted(
                batch=batch_of(work, engine["block_size"], device),
                pieces=pieces_of(work),
                wanted=tuple((p.sequence.number, p.begin + p.count - 1) for p in in_order(work) if p.ends),
            )
        )
        planning.end(work, [rng.randrange(FIRST_TOKEN, shape.vocab) for p in work if p.ends])
    return Script(steps=tuple(steps), texts={number: tuple(held.tokens) for number, held in there.items()})


def expected_states(script: Script, shape: Shape, weights: Weights) -> Tensor:
    """Return what leaves the last layer for all wanted tokens of all steps, [R, h], plainly computed in float64."""
    exact = {name: w.double().cpu() for name, w in weights.items()}
    of_text: dict[int, Tensor] = {}
    for number in {n for step in script.steps for n, _ in step.wanted}:
        of_text[number] = states(shape, exact, torch.tensor(script.texts[number]))
    rows = [of_text[n][place] for step in script.steps for n, place in step.wanted]
    return torch.stack(rows)
