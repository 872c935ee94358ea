"""Compressed descent with its memories, against the recursions written out for all clients at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paceline.baselines.training.compressed_descent import CompressedDescent, largest
from paceline.baselines.training.econtrol import EControl
from test_objective_judge import play

from paceline.families.training.ops.objective import problems
from paceline.families.training.ops.objective.measure import distance_of

HERE: dict[str, Any] = {"problem": "quadratics", "dim": 10, "condition": 5.0, "heterogeneity": 1.0}
ROUNDS = 25


def written_out(
    problem: problems.Problem, kind: str, count: int, share: float = 0.0
) -> list[np.ndarray[Any, Any]]:
    """Return models after every step."""
    at, found = np.zeros(problem.dim), []
    h, e = np.zeros((problem.count, problem.dim)), np.zeros((problem.count, problem.dim))
    for _ in range(ROUNDS):
        g = np.array([problem.gradient(n, at) for n in range(problem.count)])
        wanted = {"none": g, "error-feedback": e + g, "ef21": g - h, "econtrol": share * e + g - h}[kind]
        c = np.zeros_like(wanted)
        for n, row in enumerate(wanted):
            kept = np.argsort(-np.abs(row))[:count]
            c[n, kept] = row[kept]
        h = h + c
        e = e + g - (h if kind == "econtrol" else c)
        at = at - 0.3 / problem.smoothness * (c if kind in ("none", "error-feedback") else h).mean(axis=0)
        found.append(at)
    return found


MADE = {
    "none": lambda: CompressedDescent(keep=0.2, rate=0.3, single=False),
    "error-feedback": lambda: CompressedDescent(memory="error-feedback", keep=0.2, rate=0.3, single=False),
    "ef21": lambda: CompressedDescent(memory="ef21", keep=0.2, rate=0.3, single=False),
    "econtrol": lambda: EControl(keep=0.2, rate=0.3, single=False),
}


def models(make: Any) -> Any:
    played, params, _ = play(make, **HERE, horizon=60.0)
    problem = problems.draw(params, int(params["nodes"]), 3)
    return np.array([model for *_, model in played.reports][:ROUNDS]), problem


@pytest.mark.parametrize("kind", MADE)
def test_models_are_those_of_the_recursions(kind: str) -> None:
    found, problem = models(MADE[kind])
    # by hand: δ = 1/5, √(1 − δ) = 0.894427, η = 0.2 / (3·0.894427·1.894427)
    share = 0.2 / (3 * 0.894427191 * 1.894427191)
    for other in MADE:
        expected = np.array(written_out(problem, other, 2, share))
        apart = np.linalg.norm(found - expected, axis=1).max() / np.linalg.norm(expected)
        assert apart < 1e-7 if other == kind else apart > 1e-4


def test_without_control_it_is_ef21() -> None:
    ours, _ = models(lambda: EControl(keep=0.2, rate=0.3, single=False, control=0.0))
    theirs, _ = models(MADE["ef21"])
    assert (ours == theirs).all()


@pytest.mark.full  # four seconds; the formulas that make it so are held in the gate
def test_memories_find_the_optimum_and_what_has_none_does_not() -> None:
    last = {}
    for kind, make in MADE.items():
        played, params, _ = play(make, **HERE, horizon=1500.0)
        last[kind] = distance_of(problems.draw(params, 4, 3))(played.reports[-1][4])
    assert last["ef21"] < 1e-9
    assert last["econtrol"] < 1e-9
    assert last["error-feedback"] < last["none"] / 10
    assert last["none"] > 1e-3


def test_the_largest_are_taken_whatever_their_sign() -> None:
    assert largest(np.array([0.1, -3.0, 2.0, 0.0, 2.5]), 3).tolist() == [1, 2, 4]
