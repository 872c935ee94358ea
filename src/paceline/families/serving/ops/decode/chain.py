"""Two models that agree as often as a point says: what a target and its drafter say behind any prefix. Free of torch.

Both are functions of the whole prefix, drawn from a seed by hashing, so that a wrong token leads to other tokens behind
it, as it does with models; whether the drafter agrees is drawn behind each prefix anew, independently.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

VOCAB = 32_000


@dataclass(frozen=True, slots=True)
class _Node:
    """A prefix."""

    depth: int
    digest: bytes


class Chain:
    """A target and its drafter, as a tree of prefixes; node 0 is the prompt.

    Args:
        seed: Of both.
        acceptance: Probability that the drafter says what the target says.
    """

    def __init__(self, seed: int, acceptance: float) -> None:
        self._acceptance = acceptance
        self._nodes = [_Node(0, blake2b(seed.to_bytes(8, "little"), digest_size=16).digest())]
        self._children: dict[tuple[int, int], int] = {}
        self.edges: list[tuple[int, int]] = []
        """Of every node but the first its parent and its last token."""

    def child(self, node: int, token: int) -> int:
        """Return the prefix with one token more."""
        key = (node, token)
        found = self._children.get(key)
        if found is None:
            parent = self._nodes[node]
            digest = blake2b(parent.digest + token.to_bytes(4, "little"), digest_size=16).digest()
            found = self._children[key] = len(self._nodes)
            self._nodes.append(_Node(parent.depth + 1, digest))
            self.edges.append(key)
        return found

    def depth(self, node: int) -> int:
        """Return how many tokens a prefix has."""
        return self._nodes[node].depth

    def target(self, node: int) -> int:
        """Return what the target says behind a prefix."""
        return int.from_bytes(self._nodes[node].digest[:4], "little") % VOCAB

    def drafter(self, node: int) -> int:
        """Return what the drafter says behind a prefix."""
        digest = self._nodes[node].digest
        if int.from_bytes(digest[4:8], "little") < self._acceptance * 2**32:
            return self.target(node)
        other = 1 + int.from_bytes(digest[8:12], "little") % (VOCAB - 1)
        return (self.target(node) + other) % VOCAB
