"""Blocks of the cache: who uses them, what is in them, and which are given up first. Free of torch.

A full block is known by its tokens and by the block before it, so that requests that begin alike share blocks without
copies. A block that nobody uses stays until it is needed for something else; of those the longest unused goes first,
and of one request the last block first, since without its beginning the rest cannot be found.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from paceline.base.counting import number_of

ROOT = -1

Key = tuple[int, tuple[int, ...]]
"""The block before it (or ``ROOT``), and the tokens in it."""


def beginnings(prompt: Sequence[int], block_size: int) -> tuple[int, ...]:
    """Return a number for each beginning of full blocks that can be found for a prompt; equal ones are equal."""
    chain = [0]
    # Without the last token, as in `find`: it has to be computed to give logits.
    for begin in range(0, (len(prompt) - 1) // block_size * block_size, block_size):
        # Hashes of whole numbers are not salted, so every process gets the same ones.
        chain.append(hash((chain[-1], *prompt[begin : begin + block_size])))
    return tuple(chain[1:])


class OutOfBlocksError(Exception):
    """More blocks were asked for than are free."""


class Blocks:
    """The blocks of one cache.

    Args:
        num_blocks: How many there are.
        block_size: Tokens of a block.
        sharing: Whether full blocks can be found by their tokens.
    """

    def __init__(self, num_blocks: int, block_size: int, *, sharing: bool) -> None:
        self.block_size, self.num_blocks, self.sharing = block_size, num_blocks, sharing
        # Popped from its end: the lowest first, so equal runs use equal blocks.
        self._empty = list(range(num_blocks - 1, -1, -1))
        self._users = [0] * num_blocks
        self._found: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._unused: OrderedDict[int, None] = OrderedDict()
        self.evictions = 0
        self.version = 0
        """Grows whenever other tokens are found than before."""

    @property
    def num_free(self) -> int:
        """Return blocks that nobody uses."""
        return len(self._empty) + len(self._unused)

    def find(self, tokens: Sequence[int]) -> list[int]:
        """Return the blocks that hold the longest cached beginning of some tokens, never all of them."""
        if not self.sharing:
            return []
        found: list[int] = []
        before = ROOT
        size = self.block_size
        for begin in range(0, (len(tokens) - 1) // size * size, size):
            block = self._found.get((before, tuple(tokens[begin : begin + size])))
            # A block without the one before it cannot be used: keys and values depend on all tokens before.
            if block is None:
                break
            found.append(block)
            before = block
        return found

    def num_unused(self, blocks: Sequence[int]) -> int:
        """Return how many of some blocks nobody uses."""
        return sum(self._users[b] == 0 for b in blocks)

    def num_used_once(self, blocks: Sequence[int]) -> int:
        """Return how many of some blocks have one user."""
        return sum(self._users[b] == 1 for b in blocks)

    def use(self, blocks: Sequence[int]) -> None:
        """Add a user to blocks that were found."""
        for block in blocks:
            if self._users[block] == 0:
                del self._unused[block]
            self._users[block] += 1

    def take(self) -> int:
        """Return an empty block, with one user.

        Raises:
            OutOfBlocksError: There is none, and none that nobody uses.
        """
        if self._empty:
            block = self._empty.pop()
        elif self._unused:
            # Empty blocks first and cached ones only then: an eviction costs a possible hit.
            block, _ = self._unused.popitem(last=False)
            self._forget(block)
            self.evictions += 1
        else:
            raise OutOfBlocksError(f"all {number_of(self.num_blocks, 'block is', 'blocks are')} in use")
        self._users[block] = 1
        return block

    def fill(self, block: int, before: int, tokens: tuple[int, ...]) -> None:
        """Say what a full block holds; where another one holds the same, that one stays the one that is found.

        What follows a block that cannot be found itself is not made findable either. Its key would name a block that
        may be given up and hold something else while the one behind it stays, which would then be found for other
        tokens before it.
        """
        if not self.sharing or (before != ROOT and before not in self._keys):
            return
        key = (before, tokens)
        if key not in self._found:
            self._found[key] = block
            self._keys[block] = key
            self.version += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Take a user away from a request's blocks, given in order."""
        # The last block becomes the oldest unused one, so a chain is evicted from its end and its beginning stays
        # findable.
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block] == 0:
                if block in self._keys:
                    self._unused[block] = None
                else:
                    self._empty.append(block)

    def _forget(self, block: int) -> None:
        key = self._keys.pop(block, None)
        if key is not None and self._found.get(key) == block:
            del self._found[key]
            self.version += 1

    def check(self, tables: Sequence[Sequence[int]]) -> None:
        """Assert that every block has as many users as tables name it, and is in one place only."""
        users = [0] * self.num_blocks
        for table in tables:
            for block in table:
                users[block] += 1
        assert users == self._users, "users of blocks are miscounted"
        places = sorted([*self._empty, *self._unused, *(b for b, n in enumerate(users) if n)])
        assert places == list(range(self.num_blocks)), "a block is lost, or in two places"
