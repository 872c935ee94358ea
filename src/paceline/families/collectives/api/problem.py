"""What a technique is given: the problem of one rank, and how it states its cost.

Every technique of this family is a class or factory ``T(problem, comm, **options)`` whose instances have
``run(*buffers) -> None``; ``ops/<operation>/run.py`` lists the buffers of each operation. Its module also defines
``cost(problem, *, …) -> Cost | None`` of the options that it names: the closed form that measured bytes and messages
are checked against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.worker.communication.comm import Comm, Transfer

__all__ = ["Collective", "Comm", "Cost", "Problem", "Tensor", "Transfer", "chunk_bounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One operation as one rank sees it."""

    operation: str
    rank: int
    world_size: int
    dtype: torch.dtype
    device: torch.device
    count: int
    """Elements of S: the whole buffer, or the sum of all shares for sharded operations."""
    root: int = 0
    group_ranks: int = 0
    """Ranks per group (node); 0 when there are no groups."""
    seed: int = 0
    """Equal on all ranks; for techniques that draw random numbers or schedules."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """All parameters of the case in base units."""
    norm_rows: list[int] = field(default_factory=lambda: [0])
    """Rows normalised so far (counted by ``rms_norm``)."""

    @property
    def share(self) -> int:
        """Elements of one rank's share of a sharded operation."""
        return self.count // self.world_size

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def integer(self, name: str) -> int:
        """Return an integer parameter of the case.

        Raises:
            KeyError: The operation has no such parameter.
        """
        value = self.params[name]
        assert isinstance(value, int)
        return value

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return an uninitialised tensor on the problem's device (poisoned under test)."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)

    def rms_norm(self, x_TH: Tensor, gain_H: Tensor, *, epsilon: float = 1e-6) -> Tensor:
        """Normalise rows to unit root mean square and scale them, counting the rows.

        x_TH: (tokens, hidden); gain_H: (hidden,), of one dtype, which the result (tokens, hidden) has too. Statistics
        are taken in float32 or wider.
        """
        # Counted here, not by techniques: what they claim to save of the norm's work is a measurement.
        self.norm_rows[0] += x_TH.shape[0]
        # Squares of 16-bit numbers overflow or vanish in their own dtype.
        wide = x_TH.to(torch.promote_types(x_TH.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
        return (wide * scale).to(x_TH.dtype) * gain_H


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A technique's closed forms for one call; bytes are payload bytes without transport headers."""

    sent_bytes: int
    """Sent by the busiest rank."""
    messages: int
    """Sent by the busiest rank."""
    total_bytes: int
    """Sent by all ranks together."""
    steps: int
    """Messages on the longest chain of dependent messages: the factor of the link's latency."""


class Collective(Protocol):
    """An instance of a technique.

    One that keeps state from call to call (error feedback) also has ``reset() -> None``, which forgets it. The gate
    repeats calls without a reset to prove that the state does its work; each timed call follows a reset.
    """

    def run(self, *buffers: Tensor) -> None:
        """Perform one call; outputs are written in place.

        Buffers are contiguous, of the problem's dtype and on its device; ``ops/<operation>/run.py`` gives their shapes.
        """
        ...


def chunk_bounds(count: int, num_chunks: int) -> list[tuple[int, int]]:
    """Split ``count`` elements into consecutive chunks whose sizes differ by at most one.

    Returns:
        First element of each chunk and the one after its last.
    """
    base, extra = divmod(count, num_chunks)
    bounds: list[tuple[int, int]] = []
    start = 0
    for index in range(num_chunks):
        # The first chunks are the longer ones: techniques size their buffers by chunk 0.
        stop = start + base + (1 if index < extra else 0)
        bounds.append((start, stop))
        start = stop
    return bounds


TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
}
