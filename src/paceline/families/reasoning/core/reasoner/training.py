"""How the two reasoners are trained: a few minutes on one processor core, from nothing but a seed.

Examples are packed: a row of the batch holds several, which do not see each other. One thread and one seed give the
same weights on the same processor and library; another processor gives others, so the weights that are kept are the
reference.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from paceline.families.reasoning.core.problems.embedded import (
    LEVELS,
    MODULUS,
    PADDING,
    VOCABULARY,
    one_problem,
)
from paceline.families.reasoning.core.reasoner.network import Network, Shape, initialise
from paceline.families.reasoning.core.reasoner.optimizer import Optimizer
from paceline.families.reasoning.core.reasoner.teacher import CLEAN, EXACT, NOISY, Example, Teacher, example
from paceline.families.reasoning.core.reasoner.weights import write

CONTEXT = 256
NUM_ROWS = 8
"""Rows of ``CONTEXT`` tokens in a batch."""
NUM_WAITING = 16
"""Examples to choose from when rows are filled."""
LOG_EVERY = 50
FIRST_OPERANDS = 2
WIDEN_FROM_SHARE, WIDEN_TO_SHARE, FOUNDATION_SHARE = 0.1, 0.35, 0.4
"""Of the steps: until when operands are few, from when on all are used, and when the recipe's teacher takes over."""
IGNORED = -100
"""Target of positions outside the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a kept model was trained by."""

    name: str
    shape: Shape
    teacher: Teacher
    steps: int
    seed: int


def _shape(width: int) -> Shape:
    return Shape(width=width, layers=4, heads=4, symbols=len(VOCABULARY), context=CONTEXT)


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="weak", shape=_shape(96), teacher=NOISY, steps=2400, seed=1),
        Recipe(name="strong", shape=_shape(128), teacher=CLEAN, steps=1800, seed=1),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Packed examples."""

    tokens_BT: Tensor
    targets_BT: Tensor
    """The next token, or ``IGNORED``."""
    visible_BTT: Tensor
    """Whether a position (middle) sees another one (last): not after itself, not outside its example."""


def train(recipe: Recipe, weights: Path, log: Path) -> None:
    """Train a model; write its weights, and its loss as it went."""
    # Sums over threads come in any order; one thread and one seed give one set of weights.
    torch.set_num_threads(1)
    network = Network(recipe.shape)
    initialise(network, torch.Generator().manual_seed(recipe.seed))
    optimizer = Optimizer(network, recipe.steps)
    began = time.monotonic()
    losses = []
    with log.open("w") as lines:
        for step, batch in enumerate(batches(recipe), start=1):
            losses.append(_learn(network, optimizer, batch))
            if step % LOG_EVERY == 0 or step == recipe.steps:
                elapsed_s = round(time.monotonic() - began, 1)
                mean = round(sum(losses) / len(losses), 4)
                losses.clear()
                lines.write(json.dumps({"step": step, "loss_nats": mean, "elapsed_s": elapsed_s}) + "\n")
                lines.flush()
    write(weights, network, provenance(recipe))


def provenance(recipe: Recipe) -> dict[str, Any]:
    """Return what the weight file says about itself, beside its shape."""
    return {
        "name": recipe.name,
        "seed": recipe.seed,
        "steps": recipe.steps,
        "tokens_per_step": NUM_ROWS * CONTEXT,
        "teacher": recipe.teacher.name,
        "slips": recipe.teacher.slips,
        "misconceived": recipe.teacher.misconceived,
        "misconceptions": recipe.teacher.misconceptions,
    }


def _learn(network: Network, optimizer: Optimizer, batch: Batch) -> float:
    """Take one step and return its loss in nats."""
    logits_BTV = network(batch.tokens_BT, batch.visible_BTT)
    loss = functional.cross_entropy(
        logits_BTV.flatten(0, 1), batch.targets_BT.flatten(), ignore_index=IGNORED
    )
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def lesson(done: float) -> tuple[Teacher | None, int]:
    """Return what is taught after a share of the steps: the teacher, None for the recipe's, and the largest operand.

    A result depends on all of operator and operands at once, and on none of them alone: from full tables the loss stays
    on a plateau for a thousand steps or more. With operands 1 and 2 it leaves it within two hundred.
    """
    if done >= FOUNDATION_SHARE:
        return None, MODULUS - 1
    widened = (done - WIDEN_FROM_SHARE) / (WIDEN_TO_SHARE - WIDEN_FROM_SHARE)
    extra = round(min(max(widened, 0.0), 1.0) * (MODULUS - 1 - FIRST_OPERANDS))
    return EXACT, FIRST_OPERANDS + extra


def batches(recipe: Recipe) -> Iterator[Batch]:
    """Yield a batch for every step, of problems of all levels that are not held out."""
    rng = random.Random(recipe.seed)
    waiting: list[Example] = []
    for step in range(recipe.steps):
        teacher, max_operand = lesson(step / recipe.steps)
        rows: list[list[Example]] = []
        while len(rows) < NUM_ROWS:
            while len(waiting) < NUM_WAITING:
                level = LEVELS[int(rng.random() * len(LEVELS))]
                problem = one_problem(rng, level, held_out=False, max_operand=max_operand)
                waiting.append(example(problem, teacher or recipe.teacher, rng))
            rows.append(_row(waiting))
        yield packed(rows)


def _row(waiting: list[Example]) -> list[Example]:
    """Take examples that fit in a row, the longest-waiting first."""
    row: list[Example] = []
    room = CONTEXT
    for one in tuple(waiting):
        if len(one.tokens) <= room:
            row.append(one)
            waiting.remove(one)
            room -= len(one.tokens)
    return row


def packed(rows: list[list[Example]]) -> Batch:
    """Return a batch; behind its examples a row is padded."""
    tokens_BT = torch.full((len(rows), CONTEXT), PADDING)
    targets_BT = torch.full((len(rows), CONTEXT), IGNORED)
    owner_BT = torch.full((len(rows), CONTEXT), -1)
    for place, row in enumerate(rows):
        start = 0
        for index, one in enumerate(row):
            stop = start + len(one.tokens)
            tokens = torch.tensor(one.tokens)
            tokens_BT[place, start:stop] = tokens
            # Shifted by one inside of an example: its last token predicts nothing, and never the next example's first
            # one.
            targets_BT[place, start : stop - 1] = tokens[1:].where(torch.tensor(one.learned[1:]), IGNORED)
            owner_BT[place, start:stop] = index
            start = stop
    # Padding is owner −1 and sees padding alone, itself at least: no row of the mask is empty.
    same_BTT = owner_BT[:, :, None] == owner_BT[:, None, :]
    causal_TT = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
    return Batch(tokens_BT=tokens_BT, targets_BT=targets_BT, visible_BTT=same_BTT & causal_TT)
