"""The contract of techniques that order the operators of a batch on one device. Free of torch.

A batch has rows: first the requests that decode, one row each, then rows of a prompt. Every layer takes them through
its operators; a technique cuts each operator's rows into nano-batches and says when each is computed, and on which
share of the device's execution units. Whoever judges works out how long each takes, and what it had to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

COMPUTE, MEMORY, NETWORK = "compute", "memory", "network"
BEND = 0.4
"""The share at which a point states what memory and network reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a layer."""

    name: str
    kind: str
    """What its nano-batches are bound by when they have the device alone, for who orders them."""
    first: int
    """Its first row."""
    last: int
    """The row behind its last."""
    after: tuple[str, ...]
    """Operators of the same layer whose rows it needs; none: the last operator of the layer before."""
    whole_past: bool = False
    """Whether a row needs all rows before it, from ``first`` on: attention within a prompt."""
    row_flops: float = 0.0
    fixed_bytes: float = 0.0
    """Read by every nano-batch: weights."""
    row_bytes: float = 0.0
    row_wire_bytes: float = 0.0

    @property
    def rows(self) -> int:
        """Return how many rows it has."""
        return self.last - self.first

    def needs(self, begin: int, other: Operator) -> int:
        """Return the first row that rows from ``begin`` on need of an operator before."""
        # Rows count over the whole batch, and an operator may have some of them alone: prefill attention has no
        # decoding ones.
        return max(other.first, self.first if self.whole_past else begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A batch on one of the devices that share a model."""

    operators: tuple[Operator, ...]
    """Of a layer, in an order in which they can be computed."""
    layers: int
    flops_per_s: float
    bytes_per_s: float
    wire_bytes_per_s: float
    start_s: float
    """That every nano-batch takes besides."""
    exchange: float
    """What memory and network reach, of their rate alone, on 0.4 of the device."""

    def alone_s(self, operator: Operator, rows: int) -> float:
        """Return how many seconds some rows take on the whole device: its slowest resource, and the start."""
        # A roofline: within one operator compute, memory and links overlap fully, so the slowest decides.
        return self.start_s + max(
            rows * operator.row_flops / self.flops_per_s,
            (operator.fixed_bytes + rows * operator.row_bytes) / self.bytes_per_s,
            rows * operator.row_wire_bytes / self.wire_bytes_per_s,
        )

    def performance(self, kind: str, share: float) -> float:
        """Return the rate on a share of the device, of that on all of it: both between 0 and 1.

        Compute goes with its share. Memory and network are straight lines from (0, 0) by (0.4, ``exchange``) to (1, 1).
        """
        if kind == COMPUTE:
            return share
        # With `exchange` above 0.4 a share reaches more than itself: few units saturate memory or links, which is what
        # overlap lives on.
        if share <= BEND:
            return share * self.exchange / BEND
        return self.exchange + (share - BEND) * (1.0 - self.exchange) / (1.0 - BEND)


@dataclass(frozen=True, slots=True, kw_only=True)
class NanoBatch:
    """Some rows of an operator, computed at once."""

    layer: int
    operator: str
    begin: int
    end: int
    """The row behind its last."""
    share: float
    """Of the device, above 0 and at most 1."""
    begin_s: float


class Ordering(Protocol):
    """A technique of the operation ``overlap``."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return all nano-batches of all layers; shares of those computed at the same time sum to at most one."""
