"""A launch that failed is not made again by every test that waits for it."""

from __future__ import annotations

import pytest
from once import once


def test_a_value_is_made_once_for_each_key() -> None:
    asked: list[int] = []

    @once
    def squares(key: int) -> int:
        asked.append(key)
        return key * key

    assert [squares(2), squares(3), squares(2)] == [4, 9, 4]
    assert asked == [2, 3]


def test_what_failed_is_not_tried_again() -> None:
    asked: list[int] = []

    @once
    def launch(ranks: int) -> None:
        asked.append(ranks)
        raise TimeoutError("it hung")

    with pytest.raises(TimeoutError, match="it hung"):
        launch(4)
    for _ in range(3):
        with pytest.raises(AssertionError, match="what 4 needs has failed before"):
            launch(4)
    assert asked == [4]
