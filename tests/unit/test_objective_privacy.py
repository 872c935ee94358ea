"""The privacy accountant against published values and closed forms, and what known-wrong accounts it tells apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from paceline.baselines.training.private_descent import noise_for, zcdp_of

from paceline.families.training.api.objective import Given
from paceline.families.training.ops.objective.engine import Played
from paceline.families.training.ops.objective.judge import privacy_spent, wants_too_much
from paceline.families.training.ops.objective.privacy import epsilon, rdp

DELTA = 1e-5


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def exact_delta(noise: float, eps: float) -> float:
    """Return the δ of one Gaussian release exactly (Balle & Wang, 2018, theorem 8)."""
    a, b = 1.0 / (2.0 * noise), eps * noise
    return normal_cdf(a - b) - math.exp(eps) * normal_cdf(-a - b)


@pytest.mark.parametrize("noise", [0.8, 1.0, 3.7, 20.0])
def test_an_account_lies_between_the_exact_value_and_the_published_bound(noise: float) -> None:
    found = epsilon([noise], DELTA)
    rho = 1.0 / (2.0 * noise**2)
    published = rho + 2.0 * math.sqrt(rho * math.log(1.0 / DELTA))  # Bun & Steinke, 2016, proposition 1.3
    assert exact_delta(noise, found) <= DELTA, "it promises no more than there is"
    assert found <= published
    assert found >= 0.6 * published


def test_the_textbooks_mechanism_is_found_to_be_as_private_as_it_says() -> None:
    # Dwork & Roth, 2014, theorem A.1: noise of sqrt(2·log(1.25/δ))/ε leaves (ε, δ) for ε below 1
    for eps in (0.1, 0.5, 0.99):
        assert epsilon([math.sqrt(2.0 * math.log(1.25 / DELTA)) / eps], DELTA) <= eps


def test_divergences_of_releases_add_up() -> None:
    assert rdp([2.0, 4.0], 3.0) == pytest.approx(3.0 / 8.0 + 3.0 / 32.0)
    assert epsilon([8.0] * 64, DELTA) == pytest.approx(epsilon([1.0], DELTA))
    assert epsilon([], DELTA) == 0.0
    assert math.isinf(epsilon([1.0, 0.0], DELTA))


def test_noise_is_the_least_that_leaves_what_is_allowed() -> None:
    given = Given(
        me=1, num_nodes=3, dim=2, start=np.zeros(2), smoothness=1.0, convexity=0.0, weights={1: 0.5, 2: 0.5},
        samples=10, neighbours=(0,), mixing={}, shared_seed=1, own_seed=2, horizon_s=1.0, epsilon=1.0, delta=DELTA,
    )  # fmt: skip
    rho = zcdp_of(1.0, DELTA)
    assert rho + 2.0 * math.sqrt(rho * math.log(1.0 / DELTA)) == pytest.approx(1.0)
    noise = noise_for(40, given)
    assert 40 * (2.0 / noise) ** 2 / 2.0 == pytest.approx(rho)
    played = Played(releases=[(0, noise, 1.0)] * 40 + [(1, noise, 0.3)] * 40)
    spent = privacy_spent(played, 2, DELTA)
    assert 0.75 < spent <= 1.0
    assert wants_too_much(spent, 1.0) is None
    # one release that nobody counted is too much, and so is half of the noise
    forgot = Played(releases=[(0, noise, 1.0)] * 80)
    assert "ε = " in (wants_too_much(privacy_spent(forgot, 2, DELTA), 1.0) or "")
    assert "everything" in (
        wants_too_much(privacy_spent(Played(releases=[(1, 0.0, 1.0)]), 2, DELTA), 1.0) or ""
    )
