"""The canonical form of strided types against brute-force enumeration of their offsets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.families.collectives.api.datatypes import (
    Contiguous,
    Datatype,
    StridedBlock,
    Subarray,
    Vector,
    canonical,
)


def offsets(datatype: Datatype) -> list[int]:
    """Enumerate the offsets by the definition of each type."""
    if isinstance(datatype, Subarray):
        found = []
        for index in itertools.product(*(range(s) for s in datatype.sizes)):
            flat = 0
            for whole, start, i in zip(datatype.shape, datatype.starts, index, strict=True):
                flat = flat * whole + start + i
            found.append(flat)
        return found
    inner = offsets(datatype.of) if datatype.of else [0]
    step = datatype.stride if isinstance(datatype, Vector) else (datatype.of.extent if datatype.of else 1)
    return [i * step + o for i in range(datatype.count) for o in inner]


def enumerate_block(block: StridedBlock) -> list[int]:
    ranges = (range(c) for c in block.counts)
    return [
        block.start + sum(i * s for i, s in zip(index, block.strides, strict=True))
        for index in itertools.product(*ranges)
    ]


boxes = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3
).map(
    lambda axes: Subarray(
        shape=tuple(size + before + after for size, before, after in axes),
        sizes=tuple(size for size, _, _ in axes),
        starts=tuple(before for _, before, _ in axes),
    )
)
leaves = st.one_of(st.integers(0, 4).map(lambda c: Contiguous(count=c)), boxes)
types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda c, t: Contiguous(count=c, of=t), st.integers(0, 3), inner),
        st.builds(
            lambda c, s, t: Vector(count=c, stride=s, of=t), st.integers(0, 3), st.integers(1, 12), inner
        ),
    ),
    max_leaves=3,
)


@settings(max_examples=300, deadline=None)
@given(types)
def test_the_canonical_form_has_the_offsets_of_the_type_in_their_order(datatype: Datatype) -> None:
    assert enumerate_block(canonical(datatype)) == offsets(datatype)


@settings(max_examples=200, deadline=None)
@given(types)
def test_no_axis_of_the_canonical_form_can_be_merged_with_its_neighbour(datatype: Datatype) -> None:
    block = canonical(datatype)
    for outer, inner in itertools.pairwise(range(len(block.counts))):
        assert block.strides[outer] != block.counts[inner] * block.strides[inner]
        assert block.counts[outer] > 1


def test_equivalent_constructions_have_one_canonical_form() -> None:
    plane = Vector(count=5, stride=8, of=Contiguous(count=3))
    constructions = [
        Vector(count=2, stride=48, of=plane),
        Vector(count=2, stride=48, of=Subarray(shape=(6, 8), sizes=(5, 3), starts=(0, 0))),
        Subarray(shape=(2, 6, 8), sizes=(2, 5, 3), starts=(0, 0, 0)),
        Contiguous(
            count=1, of=Vector(count=2, stride=48, of=Vector(count=5, stride=8, of=Contiguous(count=3)))
        ),
    ]
    assert len({canonical(c) for c in constructions}) == 1


def test_contiguous_nests_collapse_to_one_axis() -> None:
    nest = Contiguous(count=4, of=Vector(count=3, stride=2, of=Contiguous(count=2)))
    assert canonical(nest) == StridedBlock(start=0, counts=(24,), strides=(1,))


@pytest.mark.parametrize(
    "wrong",
    [
        Contiguous(count=-1),
        Subarray(shape=(4,), sizes=(3,), starts=(2,)),
        Subarray(shape=(4, 4), sizes=(2, 2), starts=(-1, 0)),
    ],
)
def test_impossible_types_are_refused(wrong: Datatype) -> None:
    with pytest.raises(ValueError, match=r"a type of|a box of"):
        canonical(wrong)
