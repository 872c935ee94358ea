"""Traces that see each other's tokens as they are decoded: one cache, another order of its blocks for each of them.

Each trace's own tokens are a block of the cache, its keys rotated for positions that count from 0 in the block. To a
trace the blocks follow each other: the common beginning, the blocks of the others, its own. Attention depends on
differences of positions alone, so instead of rotating keys anew for every trace, a trace's query is rotated once for
each block, by its own position less the block's first one (Hogwild! Inference, 2025, arXiv:2504.06261, section 3.2).

Shape suffixes: R rows, Q blocks of a row, L places of a block, D width, H heads, K width of a head, P 2 (keys, values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from paceline.families.reasoning.core.reasoner.decoder import Decoder
from paceline.families.reasoning.core.reasoner.network import NORM_EPSILON, rotated


@dataclass(slots=True, kw_only=True)
class Block:
    """One trace's own tokens."""

    slot: int
    length: int = 0
    """Tokens whose keys and values are there."""


@dataclass(slots=True, kw_only=True)
class Sharing:
    """What traces that see each other have in common."""

    beginning: Block
    blocks: list[Block] = field(default_factory=list)
    """In the order in which others see them."""
    num_open: int = 0

    def layout(self, own: Block) -> list[Block]:
        """Return all blocks in the order in which one's trace sees them."""
        return [self.beginning, *(block for block in self.blocks if block is not own), own]

    @property
    def num_cached(self) -> int:
        """Tokens that are visible to every trace."""
        return self.beginning.length + sum(block.length for block in self.blocks)


def shared_step(decoder: Decoder, rows: Sequence[tuple[Sharing, Block]], tokens: Sequence[int]) -> Tensor:
    """Append one token to each row's block and return the logits of the next one, (R, V).

    What is appended in this step is visible to the others from the next one on.
    """
    layouts = [sharing.layout(own) for sharing, own in rows]
    most = max(len(layout) for layout in layouts)
    slots_RQ = torch.zeros(len(rows), most, dtype=torch.int64)
    lengths_RQ = torch.zeros(len(rows), most, dtype=torch.int64)
    turns_RQ = torch.zeros(len(rows), most, dtype=torch.int64)
    for row, layout in enumerate(layouts):
        lengths = [block.length for block in layout]
        # Its new token counts already: it sees itself.
        lengths[-1] += 1
        position = sum(lengths) - 1
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        slots_RQ[row, : len(layout)] = torch.tensor([block.slot for block in layout])
        lengths_RQ[row, : len(layout)] = torch.tensor(lengths)
        # A block's keys count from 0, so the query is turned by its distance to the block's first place (section 3.2).
        turns_RQ[row, : len(layout)] = torch.tensor([position - start for start in starts])
    own_R = torch.tensor([own.slot for _, own in rows])
    places_R = torch.tensor([own.length for _, own in rows])
    x_RD = _layers(decoder, torch.tensor(tokens), own_R, places_R, (slots_RQ, lengths_RQ, turns_RQ))
    # Only when all rows are computed: within a step nobody sees what others append.
    for _, own in rows:
        own.length += 1
    return decoder.head(x_RD)


def _layers(
    decoder: Decoder,
    tokens_R: Tensor,
    own_R: Tensor,
    places_R: Tensor,
    blocks: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """Return the stream behind the last layer, (R, D)."""
    slots_RQ, lengths_RQ, turns_RQ = blocks
    rows, shape = len(tokens_R), decoder.shape
    length = int(lengths_RQ.max())
    hidden_RQL = torch.arange(length) >= lengths_RQ[:, :, None]
    own = decoder.cosines_CK[places_R][:, None], decoder.sines_CK[places_R][:, None]
    turn = decoder.cosines_CK[turns_RQ][:, :, None], decoder.sines_CK[turns_RQ][:, :, None]
    x_RD = decoder.embedding_VD[tokens_R]
    for layer, store_PSHCK in zip(decoder.layers, decoder.cache.store_NPSHCK.unbind(0), strict=True):
        normal_RD = functional.rms_norm(x_RD, (shape.width,), None, NORM_EPSILON)
        qkv = (normal_RD @ layer.qkv).view(rows, 3, shape.heads, shape.head_width)
        store_PSHCK[0][own_R, :, places_R] = rotated(qkv[:, 1], *own)
        store_PSHCK[1][own_R, :, places_R] = qkv[:, 2]
        q_RQHK = rotated(qkv[:, None, 0], *turn)
        k_RQHLK, v_RQHLK = store_PSHCK[:, slots_RQ, :, :length].unbind(0)
        scores_RHQL = torch.einsum("rqhk,rqhlk->rhql", q_RQHK, k_RQHLK) * shape.head_width**-0.5
        # Rows have fewer blocks than the widest and blocks fewer places than the longest; the own block always has
        # one.
        scores_RHQL = scores_RHQL.masked_fill(hidden_RQL[:, None], -torch.inf)
        # One softmax over all blocks together, as if they were one sequence.
        weights_RHQL = scores_RHQL.flatten(2).softmax(-1).view_as(scores_RHQL)
        seen_RHK = torch.einsum("rhql,rqhlk->rhk", weights_RHQL, v_RQHLK)
        x_RD = torch.addmm(x_RD, seen_RHK.reshape(rows, shape.width), layer.mix)
        normal_RD = functional.rms_norm(x_RD, (shape.width,), None, NORM_EPSILON)
        x_RD = torch.addmm(x_RD, functional.gelu(normal_RD @ layer.up), layer.down)
    return x_RD
