"""What a known curve costs where it is worth as much as a technique: intervals cover, and ends are told as ends."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.report.points.equal_cost import Place, equal_cost

COSTS = tuple(float(k) for k in range(1, 17))


def worth(cost: float) -> float:
    """Return the true curve: a concave rise."""
    return 0.5 + 0.35 * (1.0 - float(np.exp(-(cost - 1.0) / 4.0)))


def drawn(
    rng: np.random.Generator, *, cost: float, true_worth: float, launches: int = 5
) -> tuple[dict[int, Place], dict[int, list[Place]]]:
    """Draw launches: questions move the curve and the technique together, the technique's own noise only itself."""
    techniques, curves = {}, {}
    for launch in range(launches):
        questions = rng.normal(0.0, 0.03)
        techniques[launch] = (cost, true_worth + questions + rng.normal(0.0, 0.015))
        curves[launch] = [(c, worth(c) + questions) for c in COSTS]
    return techniques, curves


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.6])
@pytest.mark.one_in(3)
def test_the_interval_covers_the_true_factor(factor: float) -> None:
    rng = np.random.default_rng(round(factor * 100))
    cost, rounds, covered = 5.0, 400, 0
    for _ in range(rounds):
        found = equal_cost(*drawn(rng, cost=cost, true_worth=worth(factor * cost)))
        assert found is not None
        low = found.least if found.low is None else found.low
        high = found.most if found.high is None else found.high
        covered += low <= factor <= high
    assert 0.92 <= covered / rounds <= 0.985


def test_near_the_curves_end_the_mean_of_the_launches_that_get_there_is_wrong_and_ours_is_open() -> None:
    """The naive way, launch by launch: most have no crossing, and those that have one say too little."""
    rng = np.random.default_rng(7)
    cost, factor, rounds = 5.0, 3.1, 200
    naive, missing, covered = [], 0, 0
    for _ in range(rounds):
        techniques, curves = drawn(rng, cost=cost, true_worth=worth(factor * cost))
        for launch, (_, own) in techniques.items():
            costs, worths = zip(*curves[launch], strict=True)
            if own > worths[-1]:
                missing += 1
            else:
                naive.append(float(np.interp(own, worths, costs)) / cost)
        found = equal_cost(techniques, curves)
        assert found is not None
        low = found.least if found.low is None else found.low
        covered += low <= factor and (found.high is None or factor <= found.high)
    assert missing > 0.3 * 5 * rounds
    assert np.mean(naive) < 0.85 * factor
    assert covered >= 0.92 * rounds


def curve(*worths: float) -> dict[int, list[Place]]:
    return {n: [(100.0, 0.5), (200.0, 0.6), (400.0, worths[n])] for n in range(len(worths))}


def test_what_no_vote_reaches_and_what_every_vote_beats_is_told_as_an_end() -> None:
    better = equal_cost({0: (200.0, 0.9), 1: (200.0, 0.91), 2: (200.0, 0.9)}, curve(0.7, 0.7, 0.7))
    worse = equal_cost({0: (200.0, 0.1), 1: (200.0, 0.11), 2: (200.0, 0.1)}, curve(0.7, 0.7, 0.7))
    assert better is not None
    assert worse is not None
    assert better.text() == "> 2 ×"
    assert worse.text() == "< 0.5 ×"


def test_launches_that_agree_give_the_place_itself() -> None:
    found = equal_cost(dict.fromkeys(range(3), (150.0, 0.6)), curve(0.7, 0.7, 0.7))
    assert found is not None
    assert found.factor == pytest.approx(200.0 / 150.0, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 200.0 / 150.0 < found.high


def test_one_launch_has_a_place_and_no_interval() -> None:
    found = equal_cost({0: (400.0, 0.6)}, curve(0.7))
    assert found is not None
    assert found.factor == pytest.approx(0.5, rel=0.01)
    assert found.text().endswith(" × (one launch)")


def test_a_curve_that_falls_is_worth_its_best_and_what_lies_below_its_hull_is_reached() -> None:
    found = equal_cost(
        dict.fromkeys(range(2), (100.0, 0.6)),
        {n: [(100.0, 0.5), (200.0, 0.5), (300.0, 0.7), (400.0, 0.65)] for n in range(2)},
    )
    assert found is not None
    assert found.factor == pytest.approx(2.0, rel=0.01)  # half of the questions get 300
    assert found.most == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("techniques", "curves"),
    [({0: (1.0, 0.5)}, {}), ({0: (0.0, 0.5)}, curve(0.7)), ({3: (1.0, 0.5)}, curve(0.7))],
)
def test_without_a_launch_of_both_there_is_nothing_to_say(
    techniques: dict[int, Place], curves: dict[int, list[Place]]
) -> None:
    assert equal_cost(techniques, curves) is None
