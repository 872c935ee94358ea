"""DADAO and ADOM+ against their equations, written down again for all nodes at once, and graphs by hand."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from paceline.baselines.training.adom_plus import AdomPlus
from paceline.baselines.training.dadao import Dadao, exponential
from test_objective_judge import play, point

from paceline.families.training.core.planning.graphs import constants, neighbours
from paceline.families.training.ops.objective import problems, told
from paceline.families.training.ops.objective.measure import distance_of


def test_a_grid_and_a_line_by_hand() -> None:
    assert neighbours("line", 4) == [(1,), (0, 2), (1, 3), (2,)]
    assert neighbours("grid", 9)[:5] == [(1, 3), (0, 2, 4), (1, 5), (0, 4, 6), (1, 3, 5, 7)]
    assert neighbours("grid", 7) == [(1, 2), (0, 3), (0, 3, 4), (1, 2, 5), (2, 5, 6), (3, 4), (4,)]


@pytest.mark.parametrize(
    ("kind", "count", "edges", "gap", "top", "resistance"),
    [
        # of a path the eigenvalues are 2 − 2·cos(πk/n); the only way between the ends of an edge is the edge
        ("line", 5, 4, 2 - 2 * np.cos(np.pi / 5), 2 - 2 * np.cos(4 * np.pi / 5), 1.0),
        ("complete", 6, 15, 6.0, 6.0, 2 / 6),
        # one ohm beside the n − 1 of the other way round
        ("ring", 6, 6, 2 - 2 * np.cos(np.pi / 3), 4.0, 5 / 6),
    ],
)
def test_constants_of_graphs_are_those_of_textbooks(
    kind: str, count: int, edges: int, gap: float, top: float, resistance: float
) -> None:
    found = constants(kind, count)
    assert list(found.values()) == pytest.approx([edges, gap, top, resistance])


@pytest.mark.parametrize("scale", [1e-9, 0.3, 40.0])
def test_the_exponential_of_a_matrix(scale: float) -> None:
    matrix = scale * np.random.default_rng(0).standard_normal((6, 6))
    assert exponential(matrix) == pytest.approx(scipy.linalg.expm(matrix), rel=1e-9, abs=1e-12)
    assert exponential(np.zeros((3, 3))).tolist() == np.eye(3).tolist()


HERE: dict[str, Any] = {"problem": "quadratics", "graph": "line", "nodes": 4, "condition": 6.0, "dim": 3}


def _events(given: list[Any], until: float) -> list[tuple[float, int, int]]:
    """Return instants of all clocks: a node's own twice, an edge's ends."""
    found = []
    facts = given[0].facts
    chi_1, chi_2 = facts["edges"] / facts["laplacian_gap"], facts["edges"] * facts["edge_resistance"] / 2
    for node in given:
        for other in (node.me, *node.neighbours):
            if other < node.me:
                continue
            alone = other == node.me
            seed = [node.own_seed, node.me] if alone else [node.shared_seed, node.me, other]
            rng, at = np.random.default_rng(seed), 0.0
            while (
                at := at + rng.exponential(1.0 if alone else facts["edges"] / np.sqrt(2 * chi_1 * chi_2))
            ) < until:
                found.append((at, node.me, other))
    heapq.heapify(found)
    return [heapq.heappop(found) for _ in range(len(found))]


def test_dadao_follows_its_equations_event_by_event() -> None:
    played, params, _ = play(lambda: Dadao(single=False), **HERE, horizon=60.0)
    problem = problems.draw(params, 4, 3)
    given = told.given_of(problem, params, 4)
    smooth, nu = problem.smoothness, problem.convexity / 2
    r = np.sqrt(nu / smooth)
    facts = given[0].facts
    chi_1 = (
        1 / np.sqrt(2 * (1 / facts["laplacian_gap"]) * facts["edge_resistance"] / 2) / facts["laplacian_gap"]
    )
    x, xt, y, yt, z, zt = np.zeros((6, 4, 3))
    generator = np.array(
        [
            [-r / 8, r / 8, 0, 0, 0, 0],
            [r / 8, -r / 8, 0, 0, 0, 0],
            [0, 0, -r / 4, r / 4, 0, 0],
            [0, -nu / (2 * r), -1 / (2 * r), 0, -1 / (2 * r), 0],
            [0, 0, 0, 0, -r / 4, r / 4],
            [0, 0, 0, 0, r / 8, -r / 8],
        ]
    )
    last, expected = 0.0, {n: [] for n in range(4)}
    for at, i, j in _events(given, 40.0):
        flown = scipy.linalg.expm(generator * (at - last)) @ np.stack([x, xt, y, yt, z, zt]).reshape(6, -1)
        x, xt, y, yt, z, zt = flown.reshape(6, 4, 3)
        last = at
        if i == j:
            push = problem.gradient(i, x[i]) - nu * x[i] - yt[i]
            x[i], xt[i] = x[i] - push / (4 * smooth), xt[i] - push / (4 * np.sqrt(smooth * nu))
            yt[i] = yt[i] + (r / 4 + 1) * push
            expected[i].append(x[i].copy())
            continue
        apart = (y + z)[i] - (y + z)[j]
        for node, sign in ((i, 1), (j, -1)):
            z[node], zt[node] = z[node] - sign * apart / 2, zt[node] - sign * 2 * chi_1 / r * apart
    for node, models in expected.items():
        mine = [model for who, *_, model in played.reports if who == node][: len(models)]
        assert len(mine) > 20
        assert np.array(mine) == pytest.approx(np.array(models[: len(mine)]), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("make", [Dadao, AdomPlus, lambda: AdomPlus(inner_loop=False)])
@pytest.mark.parametrize("graph", ["line", "grid", "complete"])
@pytest.mark.one_in(4)
def test_both_find_the_optimum_of_data_that_differ(make: Any, graph: str) -> None:
    played, params, _ = play(
        make, **HERE | {"graph": graph}, heterogeneity=1.0, horizon=1200.0, node_latency=1e-6
    )
    distance = distance_of(problems.draw(params, 4, 3))
    last = {who: model for who, *_, model in played.reports}
    assert sorted(last) == [0, 1, 2, 3]
    # what is rounded when it is sent adds up to nothing over nodes, and is forgotten
    assert max(distance(model) for model in last.values()) < 1e-6


def test_the_inner_loop_has_as_many_rounds_as_the_graphs_condition_asks_for() -> None:
    facts = told.given_of(problems.draw(point(**HERE), 4, 3), point(**HERE), 4)[0].facts
    loops = int(np.ceil(facts["laplacian_top"] / facts["laplacian_gap"] * np.log(2)))
    played, _, sizes = play(lambda: AdomPlus(single=False), **HERE, horizon=30.0)
    sent = [m for m in played.sent if m[0] == 0]
    computed = [c for c in played.computed if c[0] == 0]
    assert loops == 5
    assert len(sent) == loops * (len(computed) - 1), "the last gradient is cut off by the horizon"
    assert {bits for _, _, bits, *_ in sent} == set(sizes.clients)


def test_rounds_of_adom_plus_are_those_of_the_matrices() -> None:
    played, params, _ = play(lambda: AdomPlus(single=False), **HERE, horizon=30.0)
    problem = problems.draw(params, 4, 3)
    mu, smooth, chi = problem.convexity, problem.smoothness, 2.0
    laplacian = np.diag([1.0, 2, 2, 1]) - np.diag([1.0] * 3, 1) - np.diag([1.0] * 3, -1)
    mix = np.linalg.matrix_power(np.eye(4) - laplacian / np.linalg.eigvalsh(laplacian)[-1], 5)
    away = np.eye(4) - mix
    t2 = np.sqrt(mu / smooth)
    s2 = t2 / (16 * chi)
    t1, s1 = 1 / (1 / t2 + 0.5), 1 / (1 / s2 + 0.5)
    eta, beta, nu, theta = 1 / (smooth * t2), 1 / (2 * smooth), mu / 2, mu / 2 / (4 * s2)
    gamma = nu / (14 * s2 * chi**2)
    x, xf, y, yf, z, zf, m = np.zeros((7, 4, 3))
    for step in range(12):
        xg, yg, zg = t1 * x + (1 - t1) * xf, s1 * y + (1 - s1) * yf, s1 * z + (1 - s1) * zf
        q = np.array([problem.gradient(n, xg[n]) for n in range(4)]) - nu * xg
        both = np.array([[1 + eta * nu, -eta], [theta, 1 + theta * beta]])
        right = np.stack([x + eta * nu * xg - eta * q, y + theta * beta * q - theta / nu * (yg + zg)])
        nx, ny = np.linalg.solve(both, right.reshape(2, -1)).reshape(2, 4, 3)
        error = gamma / nu * (yg + zg) + m
        z, m = z + gamma / (17 * smooth) * (zg - z) - away @ error, mix @ error
        xf, yf, zf = xg + t2 * (nx - x), yg + s2 * (ny - y), zg - away @ (yg + zg) / 2
        x, y = nx, ny
        mine = np.array([[model for who, *_, model in played.reports if who == n][step] for n in range(4)])
        assert mine == pytest.approx(x, rel=1e-9, abs=1e-12)
