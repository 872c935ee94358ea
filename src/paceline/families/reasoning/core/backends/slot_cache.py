"""Keys and values of all traces of a foreign network: a slot each, every row at its own place.

Networks of ``transformers`` hand each layer's new keys and values to their cache and attend over what it gives back.
This one puts them where the batch was aimed at before the pass, and gives the slots of the batch back: in place where
they lie side by side, gathered otherwise. It asks no class of the library, only what their networks call.

Shape suffixes: S slots, H heads, C positions, K width of a head, B rows of a batch, T new positions of a row, L visible
positions, M written tokens of a batch.
"""

from __future__ import annotations

import heapq

import torch
from torch import Tensor

FIRST_SLOTS = 8
FIRST_POSITIONS = 64


class SlotCache:
    """Slots of keys and values, which grow by doubling; layers are made when they are first written.

    Args:
        context: Most positions of a slot.
    """

    def __init__(self, context: int) -> None:
        self._context = context
        self.num_slots, self.num_positions = FIRST_SLOTS, min(FIRST_POSITIONS, context)
        self._free = list(range(FIRST_SLOTS))
        """A heap."""
        self._stores: list[tuple[Tensor, Tensor]] = []
        """Keys and values of each layer, (S, H, C, K)."""
        self._rows: slice | Tensor = slice(0)
        self._into: tuple[Tensor, Tensor, Tensor] | None = None
        """Slot, position, and place in the batch of each token to write, (M,)."""
        self._length = 0
        self.layers: list[object] = []
        """None that the library would know."""
        self.is_compileable = False

    @property
    def size_bytes(self) -> int:
        """Memory of the slots."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._stores)

    @property
    def num_free(self) -> int:
        """Slots that nobody has."""
        return len(self._free)

    def take(self) -> int:
        """Return a free slot, the lowest; what it last held is still there, and never visible."""
        if not self._free:
            old = self.num_slots
            self._resize(2 * old, self.num_positions)
            # Lowest first from a heap: live slots stay close together, and can be read in place.
            self._free = list(range(old, 2 * old))
        return heapq.heappop(self._free)

    def give_back(self, slot: int) -> None:
        """Free a slot."""
        heapq.heappush(self._free, slot)

    def reserve(self, num_positions: int) -> None:
        """Make room for sequences of this length."""
        positions = self.num_positions
        while positions < num_positions:
            # By doubling, so that growing to n positions copies O(n) of them in all.
            positions *= 2
        if positions > self.num_positions:
            self._resize(self.num_slots, min(positions, self._context))

    def copy(self, source: int, target: int, num_positions: int) -> None:
        """Give one slot the beginning of another one."""
        for store in (store for layer in self._stores for store in layer):
            store[target, :, :num_positions] = store[source, :, :num_positions]

    def aim(self, slots: list[int], positions_BT: Tensor, real_BT: Tensor, length: int) -> None:
        """Say where the next pass writes, and that it sees this many positions of these slots.

        Args:
            slots: One for each row.
            positions_BT: Of the new tokens.
            real_BT: Whether to write them; the others are padding.
            length: L.
        """
        slots_B = torch.tensor(slots, device=positions_BT.device)
        places_M = real_BT.flatten().nonzero()[:, 0]
        slots_M = slots_B.repeat_interleave(positions_BT.shape[1])[places_M]
        self._into = slots_M, positions_BT.flatten()[places_M], places_M
        # A slice is a view; anything else copies keys and values of all rows in every layer.
        side_by_side = slots == list(range(slots[0], slots[0] + len(slots)))
        self._rows = slice(slots[0], slots[0] + len(slots)) if side_by_side else slots_B
        self._length = length

    def update(
        self, keys_BHTK: Tensor, values_BHTK: Tensor, layer: int, *_rest: object, **_named: object
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values and return all that the rows see, each (B, H, L, K)."""
        assert self._into is not None and layer <= len(self._stores)
        # Heads and widths are known only when a layer first writes: networks name them differently.
        if layer == len(self._stores):
            self._stores.append((self._empty(keys_BHTK), self._empty(values_BHTK)))
        slots_M, positions_M, places_M = self._into
        keys, values = self._stores[layer]
        for store, new_BHTK in ((keys, keys_BHTK), (values, values_BHTK)):
            store[slots_M, :, positions_M] = new_BHTK.transpose(1, 2).flatten(0, 1)[places_M]
        return keys[self._rows, :, : self._length], values[self._rows, :, : self._length]

    def get_seq_length(self, _layer: int = 0) -> int:
        """Return no length: rows have their own, which the positions of a pass say."""
        # Networks that build masks or positions from a cache's length would give all rows the same; these are passed
        # to them.
        return 0

    def _empty(self, like_BHTK: Tensor) -> Tensor:
        _, heads, _, width = like_BHTK.shape
        # Zeros and not whatever memory held: what is masked is multiplied by 0, and a NaN would survive that.
        return like_BHTK.new_zeros((self.num_slots, heads, self.num_positions, width))

    def _resize(self, num_slots: int, num_positions: int) -> None:
        old_slots, old_positions = self.num_slots, self.num_positions
        self.num_slots, self.num_positions = num_slots, num_positions
        for place, layer in enumerate(self._stores):
            grown = self._empty(layer[0]), self._empty(layer[1])
            for new, old in zip(grown, layer, strict=True):
                new[:old_slots, :, :old_positions] = old
            self._stores[place] = grown
