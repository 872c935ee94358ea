"""What makes a gossip point illegal."""

from __future__ import annotations

import pytest

from paceline.base.families.family import Scalar
from paceline.families.collectives.spec import FAMILY


def problems(**changes: Scalar) -> list[str]:
    point: dict[str, Scalar] = {
        "op": "mix",
        "size_bytes": 4096,
        "dtype": "float32",
        "ranks": 4,
        "payload": "gaussian",
    }
    return FAMILY.check({**point, **changes})


def test_a_floating_buffer_with_an_element_for_each_rank_is_legal() -> None:
    assert problems() == []
    assert problems(size_bytes=16) == []


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_cannot_be_averaged(dtype: str) -> None:
    assert "needs a floating dtype" in problems(dtype=dtype, payload="integers")[0]


def test_fewer_elements_than_ranks_hide_the_mixing_weights() -> None:
    assert "fewer elements than ranks (4)" in problems(size_bytes=12)[0]


def test_one_rank_has_nobody_to_mix_with() -> None:
    assert "needs at least 2 ranks" in problems(ranks=1)[0]
