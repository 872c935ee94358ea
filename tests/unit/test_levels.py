"""Variance components are found in data that were made with them; the numbers chosen are the best there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from paceline.stats.levels import (
    LEAST_LAUNCHES,
    LEAST_ROUNDS,
    Components,
    Costs,
    Numbers,
    best,
    components,
    cost_s,
    half_width,
    ideal,
    interval,
    resampled,
)

COSTS = Costs(launch=1.5, instance=0.2, round=0.002)


def layout(
    found: Components, shape: tuple[int, int, int], rounds_in_stretch: int, *, seed: int = 0
) -> np.ndarray:
    """Draw a balanced nested layout with known components."""
    generator = np.random.default_rng(seed)
    launches, instances, stretches = shape
    return (
        generator.normal(0, math.sqrt(found.launch), (launches, 1, 1))
        + generator.normal(0, math.sqrt(found.instance), (launches, instances, 1))
        + generator.normal(0, math.sqrt(found.round / rounds_in_stretch), (launches, instances, stretches))
    )


@pytest.mark.parametrize(
    "truth",
    [
        Components(launch=4e-4, instance=9e-4, round=0.04),
        Components(launch=0.0, instance=9e-4, round=0.04),
        Components(launch=25e-4, instance=0.0, round=0.01),
    ],
)
def test_known_components_are_recovered(truth: Components) -> None:
    found = components(layout(truth, (4000, 4, 5), 10), 10)
    assert found.launch == pytest.approx(truth.launch, rel=0.1, abs=3e-5)
    assert found.instance == pytest.approx(truth.instance, rel=0.1, abs=3e-5)
    assert found.round == pytest.approx(truth.round, rel=0.1)


def test_components_of_few_launches_are_unbiased() -> None:
    truth = Components(launch=4e-4, instance=9e-4, round=0.04)
    many = [components(layout(truth, (8, 4, 5), 10, seed=s), 10) for s in range(600)]
    assert np.mean([c.launch for c in many]) == pytest.approx(truth.launch, rel=0.15)
    assert np.mean([c.instance for c in many]) == pytest.approx(truth.instance, rel=0.1)
    assert np.mean([c.round for c in many]) == pytest.approx(truth.round, rel=0.05)


def test_without_the_correction_noise_of_rounds_would_be_booked_to_instances() -> None:
    truth = Components(launch=0.0, instance=0.0, round=0.04)
    values = layout(truth, (400, 4, 5), 10)
    uncorrected = float(values.mean(axis=2).var(axis=1, ddof=1).mean())
    assert uncorrected == pytest.approx(0.04 / 50, rel=0.1)
    assert abs(components(values, 10).instance) < 0.1 * uncorrected


def test_intervals_over_launches_hold_the_truth_most_of_the_time() -> None:
    """Percentile intervals of a variance over sixteen launches are too short; nine in ten is not promised."""
    truth = Components(launch=9e-4, instance=4e-4, round=0.02)
    held = 0
    for seed in range(60):
        drawn = resampled(layout(truth, (16, 4, 5), 10, seed=seed), 10, draws=200)
        low, high = interval([c.launch for c in drawn])
        held += low <= truth.launch <= high
    assert held >= 42


@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 1, 5), (4, 4, 1)])
def test_one_of_a_level_tells_nothing(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="two launches of two instances of two stretches"):
        components(np.zeros(shape), 10)


@pytest.mark.parametrize(
    "found",
    [
        Components(launch=4e-4, instance=9e-4, round=0.04),
        Components(launch=1e-6, instance=9e-3, round=0.04),
        Components(launch=25e-4, instance=0.0, round=0.01),
        Components(launch=0.0, instance=-1e-5, round=0.4),
    ],
)
@pytest.mark.parametrize("within_s", [12.0, 40.0])
def test_the_best_numbers_are_those_of_a_search_through_all(found: Components, within_s: float) -> None:
    chosen = best(found, COSTS, within_s)
    assert chosen is not None
    affordable = within_s + 1e-6  # sums of costs are not exact
    assert cost_s(chosen, COSTS) <= affordable
    least = math.inf
    for launches, instances in itertools.product(range(LEAST_LAUNCHES, 30), range(1, 17)):
        for rounds in range(LEAST_ROUNDS, 2001):
            numbers = Numbers(launches=launches, instances=instances, rounds=rounds)
            if cost_s(numbers, COSTS) > affordable:
                break
        else:
            rounds = 2001
        if rounds > LEAST_ROUNDS:
            numbers = Numbers(launches=launches, instances=instances, rounds=rounds - 1)
            least = min(least, half_width(numbers, found))
    assert half_width(chosen, found) == pytest.approx(least, rel=1e-12)


def test_the_closed_form_makes_cost_times_variance_least() -> None:
    found = Components(launch=4e-4, instance=9e-4, round=0.04)

    def work(instances: float, rounds: float) -> float:
        cost = COSTS.launch + instances * (COSTS.instance + rounds * COSTS.round)
        return cost * (found.launch + (found.instance + found.round / rounds) / instances)

    instances, rounds = ideal(found, COSTS)
    assert instances == pytest.approx(math.sqrt(1.5 / 0.2 * 9 / 4))
    assert rounds == pytest.approx(math.sqrt(0.2 / 0.002 * 0.04 / 9e-4))
    at_best = work(instances, rounds)
    for factor, other in itertools.product((0.5, 0.9, 1.0, 1.1, 2.0), repeat=2):
        assert work(instances * factor, rounds * other) >= at_best * (1 - 1e-12)


def test_a_level_without_variance_is_left_out() -> None:
    found = Components(launch=4e-4, instance=-1e-5, round=0.04)
    assert ideal(found, COSTS) == (1.0, pytest.approx(math.sqrt(1.7 / 0.002 * 0.04 / 4e-4)))
    assert ideal(Components(launch=0.0, instance=1e-4, round=0.04), COSTS)[0] == math.inf


def test_what_does_not_fit_into_the_time_has_no_best_numbers() -> None:
    assert best(Components(launch=1e-4, instance=1e-4, round=0.01), COSTS, 5.0) is None


def test_the_half_width_is_that_of_student_over_launches() -> None:
    found = Components(launch=4e-4, instance=9e-4, round=0.04)
    numbers = Numbers(launches=5, instances=2, rounds=20)
    variance = (4e-4 + (9e-4 + 0.04 / 20) / 2) / 5
    assert half_width(numbers, found) == pytest.approx(2.776445 * math.sqrt(variance), rel=1e-5)
