"""Texts that the embedded model has not seen: traces of held-out problems, as its teacher writes them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.reasoning.core.problems.embedded import LEVELS, PADDING, one_problem
from paceline.families.reasoning.core.reasoner.teacher import CLEAN, trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Texts of unequal length, filled up."""

    tokens_BT: Tensor
    counted_BT: Tensor
    """Whether a token's probability counts: those of the trace do, the problem's and the filling do not."""


def draw_texts(seed: int, count: int, context: int) -> Texts:
    """Return traces of problems of all levels in turn; those that do not fit are drawn again."""
    rng = random.Random(seed)
    rows: list[tuple[int, list[int]]] = []
    while len(rows) < count:
        problem = one_problem(rng, LEVELS[len(rows) % len(LEVELS)], held_out=True)
        text = [*problem.prompt, *trace(problem, CLEAN, rng)]
        if len(text) <= context:
            rows.append((len(problem.prompt), text))
    longest = max(len(text) for _, text in rows)
    tokens_BT = torch.full((count, longest), PADDING)
    counted_BT = torch.zeros(count, longest, dtype=torch.bool)
    for row, (prompt, text) in enumerate(rows):
        tokens_BT[row, : len(text)] = torch.tensor(text)
        counted_BT[row, prompt : len(text)] = True
    return Texts(tokens_BT=tokens_BT, counted_BT=counted_BT)
