"""Nested strided types and their canonical form, in elements.

Every nest of contiguous, vector and subarray types describes the same offsets as one strided block: a start and
(count, stride) pairs. Equal offsets in equal order have equal canonical forms.
Source: TEMPI (Pearson et al., arXiv 2012.14363), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Contiguous:
    """``count`` parts one behind the other; a part is an element, or another type repeated at its extent."""

    count: int
    of: Datatype | None = None

    @property
    def extent(self) -> int:
        """Elements from the begin of one such type to the begin of the next."""
        return self.count * (self.of.extent if self.of else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """``count`` parts whose starts lie ``stride`` elements apart."""

    count: int
    stride: int
    of: Datatype

    @property
    def extent(self) -> int:
        """Elements from the first to behind the last part's extent."""
        # No gap behind the last part, as in MPI; otherwise a vector of vectors would describe other offsets.
        return (self.count - 1) * self.stride + self.of.extent


@dataclass(frozen=True, slots=True, kw_only=True)
class Subarray:
    """A box of ``sizes`` at ``starts`` inside an array of ``shape``, last axis contiguous."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Elements of the whole array."""
        total = 1
        for size in self.shape:
            total *= size
        return total


Datatype = Contiguous | Vector | Subarray


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedBlock:
    """The canonical form: offsets start + Σ iₖ · strides[k] for 0 ≤ iₖ < counts[k], last axis fastest."""

    start: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]


def canonical(datatype: Datatype) -> StridedBlock:
    """Return the canonical form of a nest of types.

    Axes of one part are dropped, and an axis that continues its inner neighbour (its stride equals the inner count
    times the inner stride) is merged with it. A type without elements has one axis of count 0.

    Raises:
        ValueError: A negative count or a box outside its array.
    """
    start, axes = _axes(datatype)
    if any(count == 0 for count, _ in axes):
        # All types without elements describe the same offsets, none, whatever their strides say.
        return StridedBlock(start=0, counts=(0,), strides=(1,))
    merged: list[tuple[int, int]] = []
    for count, stride in axes:
        # A single part adds offset 0 only, so its stride says nothing.
        if count == 1:
            continue
        merged.append((count, stride))
        # A loop, because a merged axis may in turn continue the axis outside it.
        while len(merged) > 1 and merged[-2][1] == merged[-1][0] * merged[-1][1]:
            inner, outer = merged.pop(), merged.pop()
            merged.append((outer[0] * inner[0], inner[1]))
    merged = merged or [(1, 1)]
    return StridedBlock(start=start, counts=tuple(c for c, _ in merged), strides=tuple(s for _, s in merged))


def _axes(datatype: Datatype) -> tuple[int, list[tuple[int, int]]]:
    """Return the first offset and the (count, stride) of every level, outermost first."""
    if isinstance(datatype, Subarray):
        return _box(datatype.shape, datatype.sizes, datatype.starts)
    if datatype.count < 0:
        raise ValueError(f"a type of {number_of(datatype.count, 'part')}")
    if isinstance(datatype, Vector):
        start, inner = _axes(datatype.of)
        return start, [(datatype.count, datatype.stride), *inner]
    if datatype.of is None:
        return 0, [(datatype.count, 1)]
    start, inner = _axes(datatype.of)
    # Parts repeat at their extent, which is more than their elements where a part has gaps.
    return start, [(datatype.count, datatype.of.extent), *inner]


def _box(
    shape: Sequence[int], sizes: Sequence[int], starts: Sequence[int]
) -> tuple[int, list[tuple[int, int]]]:
    axes: list[tuple[int, int]] = []
    offset, stride = 0, 1
    # Innermost first: an axis's stride is the product of all sizes inside it.
    for whole, size, start in zip(reversed(shape), reversed(sizes), reversed(starts), strict=True):
        if start < 0 or size < 0 or start + size > whole:
            raise ValueError(f"a box of {size} at {start} inside {whole}")
        axes.insert(0, (size, stride))
        offset += start * stride
        stride *= whole
    return offset, axes
