"""Computes an engine's steps with the model: pieces of work become one flattened batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.families.serving.engine.core import Work
from paceline.families.serving.engine.model import Batch, Chunk, Model


class Stepper:
    """A step's computation.

    Args:
        model: It.
        block_size: Tokens of a block of its cache.
    """

    def __init__(self, model: Model, block_size: int) -> None:
        self._model, self._size = model, block_size
        self._offsets = torch.arange(block_size, device=model.device)

    def __call__(self, work: Sequence[Work]) -> list[int]:
        """Compute; return the next token of each piece of work that ends."""
        return [int(t) for t in self._model.next_tokens(self._batch(work)).tolist()]

    def _batch(self, work: Sequence[Work]) -> Batch:
        device = self._model.device
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        chunks: list[Chunk] = []
        decoding: list[Work] = []
        rows: list[int] = []
        last: list[int] = []
        size = self._size
        for piece in work:
            table, end = piece.sequence.table, piece.begin + piece.count
            if piece.count == 1:
                decoding.append(piece)
                rows.append(len(tokens))
            else:
                chunks.append(Chunk(first=len(tokens), rows=piece.count, slots_L=self._places(table, end)))
            tokens += piece.sequence.tokens[piece.begin : end]
            positions += range(piece.begin, end)
            slots += [table[i // size] * size + i % size for i in range(piece.begin, end)]
            if piece.ends:
                last.append(len(tokens) - 1)
        lengths = [piece.begin + 1 for piece in decoding]
        return Batch(
            tokens_N=torch.tensor(tokens, device=device),
            positions_N=torch.tensor(positions, device=device),
            slots_N=torch.tensor(slots, device=device),
            chunks=chunks,
            decoding_D=torch.tensor(rows, dtype=torch.long, device=device),
            contexts_DL=self._contexts(decoding, max(lengths, default=0)),
            lengths_D=torch.tensor(lengths, dtype=torch.long, device=device),
            last_rows=torch.tensor(last, dtype=torch.long, device=device),
        )

    def _places(self, table: Sequence[int], end: int) -> torch.Tensor:
        blocks = torch.tensor(table[: -(-end // self._size)], device=self._model.device)
        return (blocks[:, None] * self._size + self._offsets).flatten()[:end]

    def _contexts(self, decoding: Sequence[Work], longest: int) -> torch.Tensor:
        columns = -(-longest // self._size)
        tables = [[*p.sequence.table[:columns], *[0] * (columns - len(p.sequence.table))] for p in decoding]
        blocks = torch.tensor(tables, dtype=torch.long, device=self._model.device).view(
            len(decoding), columns
        )
        return (blocks[:, :, None] * self._size + self._offsets).flatten(1)[:, :longest]
