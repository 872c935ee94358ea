"""Rounds that grow as the learning rate falls, by hand; and the schedule that a technique lists itself."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from paceline.baselines.training.qsr import Qsr, growing_rounds
from training_task import make_task, moves_of, play

from paceline.families.training.core.proofs import agreement


def test_rounds_grow_with_the_inverse_square_of_the_rate() -> None:
    task = make_task(steps=200, warmup_steps=10, peak_rate=0.01)
    ends = growing_rounds(task, 4, 2.2)
    assert ends[:3] == [3, 7, 11], "of four steps while the rate warms up"
    begins = [0, *(end + 1 for end in ends[:-1])]
    for begin, end in zip(begins[3:-1], ends[3:-1], strict=True):
        assert end + 1 - begin == max(4, int((2.2 * 0.01 / task.rate(begin)) ** 2))
    lengths = [end + 1 - begin for begin, end in zip(begins[3:-1], ends[3:-1], strict=True)]
    assert lengths == sorted(lengths)
    assert lengths[-1] > 5 * lengths[0]
    assert ends[-1] == 199
    assert growing_rounds(task, 1, 0.0) == list(range(200))


def test_parameters_are_averaged_when_rounds_end_and_at_no_other_step() -> None:
    steps = 12
    found = play(partial(Qsr, least=3, growth=0.0), moves_of(steps, 3))
    for step, (own, _) in enumerate(found[:steps]):
        alike = all(torch.equal(own[0], other) for other in own[1:])
        assert alike == ((step + 1) % 3 == 0)


@pytest.mark.parametrize(
    ("seen", "fits"),
    [
        # what each of two ranks has where steps 1 to 5 take gradients, and at the end; rounds end with steps 0 and 3
        (["aa", "bb", "cd", "ef", "gg", "hh"], True),
        (["aa", "bc", "cd", "ef", "gg", "hh"], False),
        (["aa", "bb", "cc", "ef", "gg", "hh"], False),
        (["aa", "bb", "cd", "ef", "gg", "hi"], False),
    ],
)
def test_a_list_of_rounds_is_held_against_what_was_seen(seen: list[str], fits: bool) -> None:
    found = agreement.mismatch("own-rounds", [tuple(row) for row in seen], 1, (0, 3))
    assert (found is None) == fits
    assert agreement.breach("own-rounds", {}) is None
