"""How near an exact step must lie: beside its length, and beside the weights with nothing left out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.families.training.core.proofs import oracle


def judged(error: Tensor, *, step: float, plain: bool = True) -> str | None:
    """Judge a step of a length, in parts of the weights', that ends with an error."""
    begin = torch.randn(4000, generator=torch.Generator().manual_seed(1))
    way = torch.randn(4000, generator=torch.Generator().manual_seed(2))
    reference = begin + step * way
    found = (reference.double() + error.double()).float()
    allowed = oracle.last_place([reference])
    return oracle.distance_from_step([found], [reference], [begin], allowed, plain=plain)


def noise(size: float) -> Tensor:
    return size * torch.randn(4000, generator=torch.Generator().manual_seed(3))


def test_what_rounds_to_the_next_number_is_exact_however_short_the_step() -> None:
    begin = noise(1)
    reference = begin + 1e-6 * begin.flip(0)
    found = torch.nextafter(reference, reference * 2)
    allowed = oracle.last_place([reference])
    assert oracle.distance_from_step([found], [reference], [begin], allowed, plain=True) is None
    beyond = torch.nextafter(found, reference * 2)
    assert oracle.distance_from_step([beyond], [reference], [begin], allowed, plain=True) is not None


@pytest.mark.parametrize("step", [0.01, 0.1])
def test_a_step_is_held_to_its_length(step: float) -> None:
    found = judged(noise(2e-5 * step + 1e-6), step=step)
    assert found is not None
    assert found.endswith("of the way")


def test_plain_steps_are_held_to_less_than_those_that_divide_by_what_rounding_moved() -> None:
    assert judged(noise(1e-5), step=1.0, plain=False) is None
    found = judged(noise(1e-5), step=1.0)
    assert found is not None
    assert found.endswith("of the way")


def test_a_long_step_is_held_to_a_millionth_of_the_weights() -> None:
    begin, way = torch.ones(1000), torch.full((1000,), -1.9)
    reference = begin + way
    found = reference * (1 + 4e-6)
    allowed = oracle.last_place([reference])
    assert oracle.relative_distance([found], [reference], [begin], allowed) < oracle.PLAIN_TOLERANCE
    said = oracle.distance_from_step([found], [reference], [begin], allowed, plain=True)
    assert said is not None
    assert said.endswith("of a tensor's norm")
    assert oracle.distance_from_step([found], [reference], [begin], allowed, plain=False) is None


def test_a_small_tensor_is_held_to_itself() -> None:
    begin = [torch.ones(100_000), torch.full((8,), 1e-3)]
    reference = [b * 0.9 for b in begin]
    found = [reference[0], reference[1] * (1 + 1e-5)]
    said = oracle.distance_from_step(found, reference, begin, oracle.last_place(reference), plain=True)
    assert said == "1e-05 of a tensor's norm"


def test_a_distance_that_is_no_number_is_none_that_passes() -> None:
    assert judged(noise(1) * float("nan"), step=0.1) is not None
