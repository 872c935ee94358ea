"""Exchange of a strided block: ``run(source, target)``, both one-dimensional and of equal length.

The elements of interest are ``planes`` planes of ``num_blocks`` blocks; blocks are ``block`` elements long and start
``stride`` elements apart, planes start ``plane_stride`` = (num_blocks + 1) · stride elements apart. Afterwards the
blocks of ``target`` hold the previous rank's blocks of ``source`` (its own for one rank); the gaps between the blocks
of ``target`` keep their content.
Source of the problem: TEMPI (arXiv 2012.14363), section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.collectives.operation import Expected, Instance, Role
from paceline.families.collectives.payloads import draw
from paceline.families.collectives.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A strided block in elements."""

    planes: int
    num_blocks: int
    block: int
    stride: int

    @property
    def plane_stride(self) -> int:
        """Elements between the starts of neighbouring planes."""
        return (self.num_blocks + 1) * self.stride

    @property
    def extent(self) -> int:
        """Elements of a buffer that holds all planes."""
        return self.planes * self.plane_stride

    @property
    def packed(self) -> int:
        """Elements of interest."""
        return self.planes * self.num_blocks * self.block


def layout_of(problem: Problem) -> Layout:
    """Return the strided block that a problem's parameters describe."""
    item = problem.item_bytes
    return Layout(
        planes=problem.integer("planes"),
        num_blocks=problem.integer("num_blocks"),
        block=problem.integer("block_bytes") // item,
        stride=problem.integer("stride_bytes") // item,
    )


def _mask(layout: Layout, device: torch.device) -> Tensor:
    position = torch.arange(layout.extent, device=device)
    inside = position % layout.plane_stride
    return (inside % layout.stride < layout.block) & (inside < layout.num_blocks * layout.stride)


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedExchange:
    """The operation ``strided_exchange``."""

    name: str = "strided_exchange"
    buffers: tuple[str, ...] = ("source", "target")
    roles: tuple[Role, ...] = ("in", "inout")
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (extent,) twice."""
        return ((layout_of(problem).extent,),) * 2

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw a source and an old target for every rank; the blocks of the target are replaced."""
        layout = layout_of(problem)
        size, rank = problem.world_size, problem.rank
        previous = (rank - 1) % size

        def values(of_rank: int, salt: int) -> Tensor:
            drawn = draw(
                payload,
                layout.extent,
                seed=seed + salt,
                rank=of_rank,
                world_size=size,
                dtype=problem.dtype,
            )
            return drawn.to(problem.device) * magnitude if magnitude != 1.0 else drawn.to(problem.device)

        mine, theirs, old = values(rank, 1), values(previous, 1), values(rank, 2)
        mask = _mask(layout, problem.device)
        return Instance(
            arguments=(mine, old),
            expected=(None, Expected(value=torch.where(mask, theirs, old))),
            wrong=(
                ("gaps-overwritten", (None, theirs)),
                ("wrong-direction", (None, torch.where(mask, values((rank + 1) % size, 1), old))),
            ),
        )
