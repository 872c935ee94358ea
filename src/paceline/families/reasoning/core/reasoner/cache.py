"""Keys and values of all traces in one tensor, a slot each.

Slots that are given back are taken again, the lowest first, so memory follows the most traces that were ever open at
once and live slots stay close together. Slots and positions double when they run out.

A place in a slot is not a position: what was rotated for one position may be kept at any place.

Shape suffixes: N layers, P 2 (keys, values), S slots, H heads, C positions, K width of a head, B rows of a batch.
"""

from __future__ import annotations

import heapq

import torch
from torch import Tensor

from paceline.families.reasoning.core.reasoner.network import Shape

FIRST_SLOTS = 16
FIRST_POSITIONS = 64


class Cache:
    """Slots of keys and values."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        self.context = shape.context
        first_positions = min(FIRST_POSITIONS, shape.context)
        sizes = (shape.layers, 2, FIRST_SLOTS, shape.heads, first_positions, shape.head_width)
        self.store_NPSHCK = torch.zeros(sizes, dtype=dtype)
        self.free = list(range(FIRST_SLOTS))
        """A heap."""

    @property
    def num_slots(self) -> int:
        """Slots, free and taken."""
        return self.store_NPSHCK.shape[2]

    @property
    def size_bytes(self) -> int:
        """Memory of the slots."""
        return self.store_NPSHCK.nbytes

    def take(self) -> int:
        """Return a free slot; what it last held is still there, and never visible."""
        if not self.free:
            old = self.num_slots
            self._resize(2 * old, self.store_NPSHCK.shape[4])
            self.free = list(range(old, 2 * old))
        return heapq.heappop(self.free)

    def give_back(self, slot: int) -> None:
        """Free a slot."""
        heapq.heappush(self.free, slot)

    def reserve(self, num_positions: int) -> None:
        """Make room for sequences of this length."""
        positions = self.store_NPSHCK.shape[4]
        if num_positions > positions:
            while positions < num_positions:
                positions *= 2
            self._resize(self.num_slots, min(positions, self.context))

    def copy(self, source: int, target: int, count: int, *, begin: int = 0, into: int = 0) -> None:
        """Give one slot a stretch of another one's places, as it is."""
        store = self.store_NPSHCK
        # All layers in one copy; keys keep the rotation of the positions at which they were computed.
        store[:, :, target, :, into : into + count] = store[:, :, source, :, begin : begin + count]

    def get(self, slot: int, count: int) -> Tensor:
        """Return what the first places of a slot hold, (N, P, H, count, K), as a copy."""
        # A copy, since the slot is used again while this is kept.
        return self.store_NPSHCK[:, :, slot, :, :count].clone()

    def put(self, slot: int, held: Tensor) -> None:
        """Let a slot begin with what ``get`` gave."""
        self.store_NPSHCK[:, :, slot, :, : held.shape[3]] = held

    def _resize(self, num_slots: int, num_positions: int) -> None:
        old = self.store_NPSHCK
        # Zeros and not whatever memory held: what is masked is multiplied by 0, and a NaN would survive that.
        grown = old.new_zeros((*old.shape[:2], num_slots, old.shape[3], num_positions, old.shape[5]))
        grown[:, :, : old.shape[2], :, : old.shape[4]] = old
        self.store_NPSHCK = grown
