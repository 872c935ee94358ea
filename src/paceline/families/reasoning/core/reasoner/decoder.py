"""The network over a cache: the same function as ``network.py``, arranged for steps of one token in many rows.

The gains of the norms are multiplied into the matrices behind them, residual sums are part of their products, and
keys and values are read in place: rows whose slots lie close together attend in one window of the cache, in which
idle slots are computed and ignored; only scattered rows are gathered.

Shape suffixes: B rows, T new tokens of a row, L visible places, W slots of a window, D width, H heads, K width
of a head, P 2 (keys, values), V symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.families.reasoning.core.problems.embedded import PADDING
from paceline.families.reasoning.core.reasoner.cache import Cache
from paceline.families.reasoning.core.reasoner.network import (
    NORM_EPSILON,
    Layer,
    Network,
    rotary_tables,
    rotated,
)

MAX_IDLE_SHARE = 0.4
"""Of a window's slots; with more of them, gathering the live ones is cheaper."""
MAX_PREFILL_ROWS = 128
"""Rows read at once: bounds the memory that many new prompts take."""
HIDDEN = -1e30
"""Added to scores that must not count; finite, so that a row that sees nothing stays a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """A layer's weights, transposed, with the gains in front of them multiplied in."""

    qkv: Tensor
    mix: Tensor
    up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which keys and values a batch sees."""

    slots: slice | Tensor
    """Neighbours that are read in place, or scattered ones that are gathered."""
    members_B: Tensor | None
    """Rows' places among neighbours; None where they are gathered, which gives every row its own."""
    num_slots: int
    length: int
    """L."""
    bias_WTL: Tensor
    """0 where visible, else ``HIDDEN``."""


class Decoder:
    """Reads tokens into slots, and says what comes next."""

    def __init__(self, network: Network) -> None:
        self.shape = network.shape
        self.dtype = network.embedding.weight.dtype
        self.cache = Cache(network.shape, self.dtype)
        self.embedding_VD = network.embedding.weight.detach()
        # The norm's gain scales the next matrix's inputs, so it can be multiplied in once and costs nothing a token.
        self.head_DV = (self.embedding_VD * network.final_gain.detach()).T.contiguous()
        self.layers = [_matrices(layer) for layer in network.layers]
        self.cosines_CK, self.sines_CK = rotary_tables(network.shape, self.dtype)

    def read(
        self,
        slots: Sequence[int],
        starts: Sequence[int],
        chunks: Sequence[Sequence[int]],
        shifts: Sequence[int],
    ) -> None:
        """Put chunks of tokens, none of them empty, into slots that hold what comes before.

        A text that several slots begin with is read once, and its keys and values are copied.

        Args:
            slots: One for every chunk.
            starts: Places of the chunks' first tokens.
            chunks: The tokens.
            shifts: By how much their places are ahead of their positions.
        """
        first_of: dict[tuple[int, ...], int] = {}
        again: list[tuple[int, int]] = []
        rows = []
        for row, (start, chunk) in enumerate(zip(starts, chunks, strict=True)):
            # Only chunks at the beginning: with a past of its own the same text has other keys and values.
            first = row if start else first_of.setdefault(tuple(chunk), row)
            if first == row:
                rows.append(row)
            else:
                again.append((first, row))
        for begin in range(0, len(rows), MAX_PREFILL_ROWS):
            part = rows[begin : begin + MAX_PREFILL_ROWS]
            self._read(
                [slots[row] for row in part],
                [starts[row] for row in part],
                [chunks[row] for row in part],
                [shifts[row] for row in part],
            )
        for first, row in again:
            self.cache.copy(slots[first], slots[row], len(chunks[row]))

    def logits(self, slots: Sequence[int], starts: Sequence[int], chunks: Sequence[Sequence[int]]) -> Tensor:
        """Put chunks, none of them empty, into slots and return the logits of what follows each token, (B, T, V).

        Rows behind the end of a shorter chunk mean nothing.
        """
        x_MD = self._read(slots, starts, chunks, [0] * len(slots))
        return self.head(x_MD).view(len(slots), -1, self.head_DV.shape[1])

    def _read(
        self,
        slots: Sequence[int],
        starts: Sequence[int],
        chunks: Sequence[Sequence[int]],
        shifts: Sequence[int],
    ) -> Tensor:
        longest = max(len(chunk) for chunk in chunks)
        tokens_BT = torch.tensor([[*chunk, *[PADDING] * (longest - len(chunk))] for chunk in chunks])
        lengths_B = torch.tensor([len(chunk) for chunk in chunks])
        offsets_BT = torch.arange(longest).expand(len(chunks), longest)
        real_BT = offsets_BT < lengths_B[:, None]
        # Padding takes the place of the chunk's first token: it sees something, and it is never written.
        places_BT = torch.tensor(starts)[:, None] + offsets_BT.where(real_BT, 0)
        return self._forward(tokens_BT, places_BT, torch.tensor(shifts), torch.tensor(slots), real_BT)

    def step(
        self, slots: Sequence[int], places: Sequence[int], tokens: Sequence[int], shifts: Sequence[int]
    ) -> Tensor:
        """Put one token into each slot and return the logits of the next one, (B, V)."""
        x_BD = self._forward(
            torch.tensor(tokens)[:, None],
            torch.tensor(places)[:, None],
            torch.tensor(shifts),
            torch.tensor(slots),
            None,
        )
        return self.head(x_BD)

    def head(self, x_MD: Tensor) -> Tensor:
        """Return the logits of what follows, (M, V), from the stream behind the last layer, (M, D)."""
        return functional.rms_norm(x_MD, (self.shape.width,), None, NORM_EPSILON) @ self.head_DV

    def _forward(
        self,
        tokens_BT: Tensor,
        places_BT: Tensor,
        shifts_B: Tensor,
        slots_B: Tensor,
        real_BT: Tensor | None,
    ) -> Tensor:
        """Return the stream behind the last layer, (B·T, D); ``real_BT`` is None where every token is to be written."""
        (rows, num_new), width = tokens_BT.shape, self.shape.width
        window = _window(slots_B, places_BT, self.dtype)
        written = slice(None) if real_BT is None else real_BT.flatten()
        into = slots_B.repeat_interleave(num_new)[written], places_BT.flatten()[written]
        # A place in the slot is not a position: behind merged forks positions lag by what the shorter ones wrote.
        positions_BT = places_BT - shifts_B[:, None]
        cosines = self.cosines_CK[positions_BT][:, :, None, None]
        sines = self.sines_CK[positions_BT][:, :, None, None]
        x_MD = self.embedding_VD[tokens_BT.flatten()]
        for layer, store_PSHCK in zip(self.layers, self.cache.store_NPSHCK.unbind(0), strict=True):
            normal_MD = functional.rms_norm(x_MD, (width,), None, NORM_EPSILON)
            qkv = (normal_MD @ layer.qkv).view(rows, num_new, 3, self.shape.heads, self.shape.head_width)
            q_BTHK, k_BTHK = rotated(qkv[:, :, :2], cosines, sines).unbind(2)
            # Before attention, so that new tokens see themselves and each other through the cache alone.
            store_PSHCK[0][into[0], :, into[1]] = k_BTHK.flatten(0, 1)[written]
            store_PSHCK[1][into[0], :, into[1]] = qkv[:, :, 2].flatten(0, 1)[written]
            seen_MD = _attend(q_BTHK.transpose(1, 2), store_PSHCK, window).reshape(-1, width)
            # Product and residual sum in one call.
            x_MD = torch.addmm(x_MD, seen_MD, layer.mix)
            normal_MD = functional.rms_norm(x_MD, (width,), None, NORM_EPSILON)
            x_MD = torch.addmm(x_MD, functional.gelu(normal_MD @ layer.up), layer.down)
        return x_MD


def _matrices(layer: nn.Module) -> Matrices:
    assert isinstance(layer, Layer)
    qkv_DE, up_DE = layer.qkv.weight.detach().T, layer.up.weight.detach().T
    return Matrices(
        qkv=(layer.attention_gain.detach()[:, None] * qkv_DE).contiguous(),
        mix=layer.mix.weight.detach().T.contiguous(),
        up=(layer.perceptron_gain.detach()[:, None] * up_DE).contiguous(),
        down=layer.down.weight.detach().T.contiguous(),
    )


def _window(slots_B: Tensor, places_BT: Tensor, dtype: torch.dtype) -> Window:
    """Choose between reading in place and gathering."""
    rows, num_new = places_BT.shape
    length = int(places_BT.max()) + 1
    first, stop = int(slots_B.min()), int(slots_B.max()) + 1
    hidden_BTL = torch.arange(length) > places_BT[:, :, None]
    bias_BTL = torch.zeros(hidden_BTL.shape, dtype=dtype).masked_fill_(hidden_BTL, HIDDEN)
    # Reading in place computes idle slots as well, gathering copies the live ones: whichever is less.
    if rows < (1 - MAX_IDLE_SHARE) * (stop - first):
        return Window(slots=slots_B, members_B=None, num_slots=rows, length=length, bias_WTL=bias_BTL)
    members_B = slots_B - first
    # Idle slots of the window are hidden whole; their rows are computed and thrown away.
    bias_WTL = torch.full((stop - first, num_new, length), HIDDEN, dtype=dtype)
    bias_WTL[members_B] = bias_BTL
    return Window(
        slots=slice(first, stop),
        members_B=members_B,
        num_slots=stop - first,
        length=length,
        bias_WTL=bias_WTL,
    )


def _attend(q_BHTK: Tensor, store_PSHCK: Tensor, window: Window) -> Tensor:
    """Return what each row's queries see, (B, T, H, K)."""
    k_WHLK, v_WHLK = store_PSHCK[:, window.slots, :, : window.length].unbind(0)
    q_WHTK = q_BHTK
    if window.members_B is not None:
        q_WHTK = q_BHTK.new_zeros((window.num_slots, *q_BHTK.shape[1:]))
        q_WHTK[window.members_B] = q_BHTK
    seen_WHTK = functional.scaled_dot_product_attention(
        q_WHTK, k_WHLK, v_WHLK, attn_mask=window.bias_WTL[:, None]
    )
    seen_BHTK = seen_WHTK if window.members_B is None else seen_WHTK[window.members_B]
    return seen_BHTK.transpose(1, 2)
