"""Exchange of a strided block: ``run(source, target)``, both one-dimensional and of equal length.

The elements of interest are ``planes`` planes of ``num_blocks`` blocks; blocks are ``block`` elements long and start
``stride`` elements apart, planes start ``plane_stride`` = (num_blocks + 1) · stride elements apart. Afterwards the
blocks of ``target`` hold the previous rank's blocks of ``source`` (its own for one rank); the gaps between the blocks
of ``target`` keep their content.
Source of the problem: TEMPI (arXiv 2012.14363), section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.families.collectives.api.problem import Problem


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
        # One stride more than the blocks take: planes do not continue each other, so
        # the canonical form keeps both axes.
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
    """Return the strided block that a problem's parameters describe, in elements of its dtype.

    Raises:
        KeyError: The operation is not ``strided_exchange``, whose parameters these are.
    """
    item = problem.item_bytes
    return Layout(
        planes=problem.integer("planes"),
        num_blocks=problem.integer("num_blocks"),
        block=problem.integer("block_bytes") // item,
        stride=problem.integer("stride_bytes") // item,
    )
