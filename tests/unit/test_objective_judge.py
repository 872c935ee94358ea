"""Problems against differences, optima against problems, and logs that somebody has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline.families.training.core.planning.graphs import COMPLETE, REGULAR, RING, mixing
from paceline.families.training.ops.objective import problems, told
from paceline.families.training.ops.objective.attacks import byzantine
from paceline.families.training.ops.objective.engine import Engine, Played
from paceline.families.training.ops.objective.judge import broken_laws
from paceline.families.training.ops.objective.measure import distance_of
from paceline.families.training.ops.objective.optimum import optimum
from paceline.families.training.ops.objective.paces import Paces
from paceline.families.training.ops.objective.parameters import PARAMETERS

SMALL = {"nodes": 4, "dim": 8, "samples": 30, "heterogeneity": 0.5, "horizon": 40.0}


def point(**changed: Any) -> dict[str, Any]:
    return {p.name: p.default for p in PARAMETERS} | SMALL | changed


def drawn(seed: int = 3, **changed: Any) -> problems.Problem:
    params = point(**changed)
    return problems.draw(params, int(params["nodes"]), seed)


def play(make: Callable[[], Any], seed: int = 3, **changed: Any) -> tuple[Played, dict[str, Any], Any]:
    params = point(**changed)
    problem = problems.draw(params, int(params["nodes"]), seed)
    given = told.given_of(problem, params, seed + 1)
    made = [make() for _ in given]
    engine = Engine(
        problem,
        params,
        [m.run(g) for m, g in zip(made, given, strict=True)],
        Paces(params, problem.count, seed + 2),
        [g.neighbours for g in given],
        told.first_with_data(params),
        seed + 3,
        told.leaving(params, seed + 4),
        byzantine(params, seed + 5),
    )
    return engine.play(), params, made[0].sizes(given[-1])


@pytest.mark.parametrize("kind", ["quadratics", "logistic", "nonconvex", "classes"])
@pytest.mark.parametrize("apart", [0.0, 0.5])
def test_gradients_are_the_slopes_of_values(kind: str, apart: float) -> None:
    problem = drawn(problem=kind, heterogeneity=apart)
    at, direction = np.random.default_rng(0).standard_normal((2, problem.dim))
    for node in range(problem.count):
        step = 1e-5 * direction
        slope = (problem.value(node, at + step) - problem.value(node, at - step)) / 2e-5
        assert problem.gradient(node, at) @ direction == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_a_games_operator_is_monotone_and_turns() -> None:
    problem = drawn(problem="bilinear-game")
    x, y = np.random.default_rng(0).standard_normal((2, problem.dim))
    difference = problem.mean_gradient(x) - problem.mean_gradient(y)
    assert difference @ (x - y) == pytest.approx(problem.convexity * np.sum((x - y) ** 2))
    assert np.linalg.norm(difference) <= problem.smoothness * np.linalg.norm(x - y)


def test_gradients_of_samples_are_those_of_their_mean() -> None:
    problem = drawn(problem="nonconvex")
    at = np.random.default_rng(0).standard_normal(problem.dim)
    np.testing.assert_allclose(problem.each_gradient(1, at).mean(axis=0), problem.gradient(1, at))


@pytest.mark.parametrize("kind", ["quadratics", "logistic", "bilinear-game", "classes"])
def test_the_optimum_has_no_gradient_and_distance_zero(kind: str) -> None:
    problem = drawn(problem=kind)
    best = optimum(problem)
    assert best is not None
    assert np.linalg.norm(problem.mean_gradient(best)) < 1e-9
    assert distance_of(problem)(best) == pytest.approx(0.0, abs=1e-12)
    if kind != "classes":
        assert distance_of(problem)(np.zeros(problem.dim)) == pytest.approx(1.0)


def test_a_wrong_gradient_is_found_at_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = drawn(problem="logistic")
    monkeypatch.setitem(problem.data, "ridge", problem.data["ridge"])  # type: ignore[arg-type]
    wrong = replace(problem, kind="nonconvex")
    right = distance_of(problem)
    assert right(np.zeros(problem.dim)) == pytest.approx(1.0)
    monkeypatch.setattr(problems.Problem, "mean_gradient", lambda self, at: wrong.gradient(0, at))
    with pytest.raises(ValueError, match="gradient at the optimum"):
        distance_of(problem)


@pytest.mark.parametrize("graph", [RING, COMPLETE, REGULAR])
def test_mixing_is_symmetric_and_sums_to_one(graph: str) -> None:
    weights = mixing(graph, 9)
    np.testing.assert_allclose(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    assert (weights >= 0).all()
    assert np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2] < 1.0


def test_an_honest_log_keeps_all_laws() -> None:
    played, params, sizes = play(FederatedAveraging, pace="spread", horizon=400.0)
    assert broken_laws(played, params, sizes, Paces(params, 4, 5)) == []
    assert broken_laws(played, params, sizes, Paces(params, 4, 6)), "durations are of another seed"


def _shorter(played: Played) -> None:
    node, kind, begin_s, end_s = played.computed[3]
    played.computed[3] = node, kind, begin_s, end_s - 0.5


def _twice(played: Played) -> None:
    played.computed.insert(4, played.computed[3])


def _smaller(played: Played) -> None:
    sender, receiver, bits, *times = played.sent[2]
    played.sent[2] = sender, receiver, bits // 2, *times  # type: ignore[assignment]


def _earlier(played: Played) -> None:
    sender, receiver, bits, sent_s, at_s = played.sent[2]
    played.sent[2] = sender, receiver, bits, sent_s, at_s - 1e-4


def _fewer(played: Played) -> None:
    node, at_s, bits, *rest = played.reports[-1]
    played.reports[-1] = node, at_s, bits - 64, *rest  # type: ignore[assignment]


def _elsewhere(played: Played) -> None:
    played.reports[-1] = 2, *played.reports[-1][1:]  # type: ignore[assignment]


def _infinite(played: Played) -> None:
    *rest, model = played.reports[-1]
    played.reports[-1] = *rest, model * np.inf  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_shorter, "and it takes"),
        (_twice, "computes twice"),
        (_smaller, "by its own formula"),
        (_earlier, "too early or too late"),
        (_fewer, "bits were counted"),
        (_elsewhere, "the server does"),
        (_infinite, "not finite"),
        (lambda played: played.reports.clear(), "no node ever reported"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_changed_log_is_refused(change: Callable[[Played], None], said: str) -> None:
    played, params, sizes = play(FederatedAveraging)
    change(played)
    assert said in " ".join(broken_laws(played, params, sizes, Paces(params, 4, 5)))
