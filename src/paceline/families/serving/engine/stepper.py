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

    def __call__(self, work: Sequence[Work]) -> list[int]:
        """Compute; return the next token of each piece of work that ends, in order."""
        decodes = [piece for piece in work if piece.count == 1]
        chunks = [piece for piece in work if piece.count > 1]
        found = iter(self._model.next_tokens(self._batch(decodes, chunks)).tolist())
        tokens = {piece.sequence.number: int(next(found)) for piece in (*decodes, *chunks) if piece.ends}
        return [tokens[piece.sequence.number] for piece in work if piece.ends]

    def _batch(self, decodes: Sequence[Work], chunks: Sequence[Work]) -> Batch:
        size = self._size
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        last: list[int] = []
        parts: list[Chunk] = []
        for piece in (*decodes, *chunks):
            table, end = piece.sequence.table, piece.begin + piece.count
            if piece.count > 1:
                blocks = self._tensor(table[: -(-end // size)])
                parts.append(Chunk(first=len(tokens), rows=piece.count, context=end, blocks_C=blocks))
            tokens += piece.sequence.tokens[piece.begin : end]
            positions += range(piece.begin, end)
            slots += [table[i // size] * size + i % size for i in range(piece.begin, end)]
            if piece.ends:
                last.append(len(tokens) - 1)
        lengths = [piece.begin + 1 for piece in decodes]
        columns = -(-max(lengths, default=0) // size)
        tables = [[*p.sequence.table[:columns], *[0] * (columns - len(p.sequence.table))] for p in decodes]
        return Batch(
            tokens_N=self._tensor(tokens),
            positions_N=self._tensor(positions),
            slots_N=self._tensor(slots),
            chunks=parts,
            blocks_DC=self._tensor(tables).view(len(decodes), columns),
            lengths_D=self._tensor(lengths),
            last_rows=self._tensor(last),
            block_size=size,
        )

    def _tensor(self, numbers: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._model.device)
