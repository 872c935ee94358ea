"""Computes an engine's steps with the model: pieces of work become one flattened batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.families.serving.api.paged import Batch, Chunk
from paceline.families.serving.core.engine.core import Work
from paceline.families.serving.core.engine.model import Model


class Stepper:
    """A step's computation.

    Args:
        model: It.
        block_size: Tokens of a block of its cache.
    """

    def __init__(self, model: Model, block_size: int) -> None:
        self._model, self._size = model, block_size

    def __call__(self, work: Sequence[Work]) -> list[int]:
        """Compute; return the next token of each piece of work that ends, in order."""
        found = iter(self._model.next_tokens(self._batch(work)).tolist())
        tokens = {piece.sequence.number: int(next(found)) for piece in in_order(work) if piece.ends}
        # Back in the plan's order: the batch had single tokens first, and the engine pairs tokens with its own list.
        return [tokens[piece.sequence.number] for piece in work if piece.ends]

    def _batch(self, work: Sequence[Work]) -> Batch:
        return batch_of(work, self._size, self._model.device)


def in_order(work: Sequence[Work]) -> list[Work]:
    """Return work in the order in which a batch holds it: requests with one token first."""
    # Single tokens attend as one padded batch, parts of prompts one by one; the sort is stable.
    return sorted(work, key=lambda piece: piece.count > 1)


def batch_of(work: Sequence[Work], size: int, device: torch.device) -> Batch:
    """Return a step's work as one batch of blocks of ``size`` tokens."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last: list[int] = []
    parts: list[Chunk] = []

    def tensor(numbers: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=device)

    for piece in in_order(work):
        table, end = piece.sequence.table, piece.begin + piece.count
        if piece.count > 1:
            blocks = tensor(table[: -(-end // size)])
            parts.append(Chunk(first=len(tokens), rows=piece.count, context=end, blocks_C=blocks))
        tokens += piece.sequence.tokens[piece.begin : end]
        positions += range(piece.begin, end)
        # The page table: a token's slot is its block's place times the block's size, and its place inside.
        slots += [table[i // size] * size + i % size for i in range(piece.begin, end)]
        if piece.ends:
            last.append(len(tokens) - 1)
    decodes = [piece for piece in work if piece.count == 1]
    lengths = [piece.begin + 1 for piece in decodes]
    columns = -(-max(lengths, default=0) // size)
    # Any valid block does as padding, since the mask hides what lies beyond a request's length.
    tables = [[*p.sequence.table[:columns], *[0] * (columns - len(p.sequence.table))] for p in decodes]
    return Batch(
        tokens_N=tensor(tokens),
        positions_N=tensor(positions),
        slots_N=tensor(slots),
        chunks=parts,
        blocks_DC=tensor(tables).view(len(decodes), columns),
        lengths_D=tensor(lengths),
        last_rows=tensor(last),
        block_size=size,
    )
