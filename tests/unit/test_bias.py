"""Whether a mean of steps is the exact one: honest noise of any shape passes, a bias in any direction does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paceline.families.training.core.proofs.bias import DRAWS, MOST_ERRORS, problem, statistic

COUNT = 3000
Draw = Callable[[torch.Generator], Tensor]


def gradient(power: float) -> Tensor:
    """Return a gradient; the higher the power, the more of it lies in few elements."""
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(1)).sign() * torch.rand(
        COUNT, generator=torch.Generator().manual_seed(2)
    ).pow(power)


def ternary(exact: Tensor, generator: torch.Generator) -> Tensor:
    """Return −s, 0 or s at random, so that the expectation is the gradient."""
    scale = exact.abs().max()
    drawn = torch.rand(len(exact), generator=generator)
    return scale * exact.sign() * (drawn < exact.abs() / scale)


def errors_of(step: Draw, exact: Tensor, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [step(generator) - exact for _ in range(DRAWS)]


def judged(step: Draw, exact: Tensor, seed: int = 3) -> str | None:
    return problem(errors_of(step, exact, seed), [float(exact.norm())] * DRAWS)


@pytest.mark.parametrize("power", [1.0, 8.0, 40.0])
def test_unbiased_codes_pass_however_rare_they_are(power: float) -> None:
    exact = gradient(power)
    for seed in range(20):
        assert judged(lambda g: ternary(exact, g), exact, seed) is None


@pytest.mark.parametrize("power", [1.0, 8.0, 40.0])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda coded, exact: 2 * coded,
        lambda coded, exact: coded + 0.3 * exact.norm() / math.sqrt(len(exact)),
        lambda coded, exact: exact.abs().max() * (exact / exact.abs().max()).round(),
        lambda coded, exact: torch.zeros_like(exact),
        lambda coded, exact: coded.clamp(-0.5 * exact.abs().max(), 0.5 * exact.abs().max()),
    ],
    ids=["sums", "drifts", "rounds to the nearest", "sends nothing", "clips"],
)
def test_a_bias_is_found(power: float, wrong: Callable[[Tensor, Tensor], Tensor]) -> None:
    exact = gradient(power)
    found = judged(lambda g: wrong(ternary(exact, g), exact), exact)
    assert found is not None
    assert f"the mean of {DRAWS} steps is " in found


def test_single_elements_that_err_alone_do_not_raise_a_false_alarm() -> None:
    """The widest tail that the threshold is made for: the squared mean of one normal number."""
    exact = torch.zeros(COUNT)
    exact[0] = 1.0
    largest = 0.0
    for seed in range(100):
        errors = errors_of(lambda g: exact + exact * torch.randn(1, generator=g), exact, seed)
        assert problem(errors, [1.0] * DRAWS) is None
        square, spread = statistic(torch.stack(errors))
        largest = max(largest, square / spread)
    assert 3 < largest < MOST_ERRORS, "the tail is wide, and the threshold lies beyond it"


def test_the_statistic_is_the_squared_bias_and_its_error_that_of_many_repetitions() -> None:
    exact = gradient(1.0)
    bias = torch.full((COUNT,), 0.02)
    found = [
        statistic(torch.stack(errors_of(lambda g: ternary(exact, g) + bias, exact, seed)))
        for seed in range(60)
    ]
    squares = torch.tensor([f[0] for f in found], dtype=torch.float64)
    assert float(squares.mean()) == pytest.approx(float(bias.square().sum()), rel=0.2)
    unbiased = [statistic(torch.stack(errors_of(lambda g: ternary(exact, g), exact, s))) for s in range(60)]
    spread = float(torch.tensor([f[0] for f in unbiased], dtype=torch.float64).std())
    assert float(torch.tensor([f[1] for f in unbiased]).mean()) == pytest.approx(spread, rel=0.3)


def test_rounding_of_an_exact_step_is_no_bias_and_what_is_not_finite_is_no_step() -> None:
    exact = gradient(1.0)
    assert judged(lambda g: exact * (1 + 1e-6), exact) is None
    assert judged(lambda g: exact * (1 + 1e-4), exact) is not None
    assert judged(lambda g: exact * math.nan, exact) == "weights are not finite"
