"""Measures one block of ``objective``: nodes that optimise what they see a part of, in virtual time.

A process plays all nodes; another runs each of them again, alone. Logs are judged here, by code that plays nothing, and
models are held against an optimum that only this process works out.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from paceline.base.counting import number_of
from paceline.families.training.api.objective import Sizes, Value
from paceline.families.training.core import apart
from paceline.families.training.ops.objective import child
from paceline.families.training.ops.objective.attacks import RANDOM
from paceline.families.training.ops.objective.engine import COMPUTED, Played
from paceline.families.training.ops.objective.figures import Curve, curve_of, figures
from paceline.families.training.ops.objective.judge import broken_laws, privacy_spent, wants_too_much
from paceline.families.training.ops.objective.measure import Distance, distance_of
from paceline.families.training.ops.objective.paces import ALIKE, Paces
from paceline.families.training.ops.objective.problems import GAME, LOGISTIC, QUADRATICS, Problem, draw
from paceline.families.training.ops.objective.promises import Optimising
from paceline.families.training.ops.objective.reductions import iterates
from paceline.worker.ranks.session import Block, Case, CaseError, Session

LABEL = "virtual time: drawn durations of gradients and a stated link"
ORACLE = (
    "laws of computations, messages and reports; every node run again alone; a reduction to a plain algorithm; "
    "an optimum in closed form or by Newton's method"
)
PROVED_ROUNDS = 12
SAME = 1e-9
"""Of iterates in float64, over their norm."""
PROOF: Mapping[str, Any] = {
    "nodes": 4,
    "dim": 6,
    "samples": 9,
    "condition": 5.0,
    "heterogeneity": 0.4,
    "pace": ALIKE,
    "spread": 1.0,
    "gradient_time": 1.0,
    "horizon": 400.0,
    "node_rate": 1e9,
    "node_latency": 1e-3,
    "leaving_share": 0.0,
    "byzantine": 0,
    "attack": RANDOM,
    "target": 0.0,
    "privacy_epsilon": 0.0,
    "privacy_delta": 1e-5,
}


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    if session.rank != 0:
        return
    seed = session.draw_seed("objective", block.block)
    problem = draw(block.params, int(block.params["nodes"]), seed)
    distance = distance_of(problem)
    apart.measure_each(
        session, block, "objective", lambda case: _measured(block, case, problem, distance, seed)
    )


def _measured(block: Block, case: Case, problem: Problem, distance: Distance, seed: int) -> dict[str, Any]:
    """Prove a technique, play it, judge the log, and read the figures.

    Raises:
        CaseError: It breaks a law or a promise.
    """
    promised = apart.technique_of(case).promised(Optimising)
    proved = prove(case, promised, block.params, seed)
    played, sizes, nodes = played_by(case, block.params, seed)
    _judge(played, sizes, promised, block.params, seed)
    _alone(case, nodes)
    if problem.dim != len(played.reports[0][4]):
        raise CaseError("incorrect", "it reported models of another size")
    spent = (
        privacy_spent(played, problem.count, float(block.params["privacy_delta"]))
        if promised.private
        else 0.0
    )
    too_much = wants_too_much(spent, float(block.params["privacy_epsilon"]))
    if too_much:
        raise CaseError("incorrect", too_much)
    curve = curve_of(played, distance, all_report=promised.all_report)
    metrics, absent = figures(played, curve, problem, block.params)
    if promised.private:
        metrics["privacy_spent"] = spent
    return {
        "status": "ok",
        "metrics": {name: {"samples": [value]} for name, value in metrics.items()},
        "absent": absent,
        "correctness": {
            "passed": True,
            "oracle": ORACLE,
            "gate_checks": len(played.computed) + len(played.sent) + len(played.reports) + proved,
        },
        "accounting": _accounting(played, curve, problem),
    }


def played_by(
    case: Case, params: Mapping[str, Any], seed: int, options: Mapping[str, Any] | None = None
) -> tuple[Played, Sizes, bytes]:
    """Let a process play a technique.

    Raises:
        CaseError: It was refused, or failed.
    """
    asked = {
        "case": asdict(case) | {"options": dict(case.options)},
        "params": dict(params),
        "seed": seed,
        "options": {**case.options, **(options or {})},
    }
    answer = pickle.loads(apart.ask(child.play, asked))
    apart.fail(answer)
    return answer["played"], answer["sizes"], answer["nodes"]


def _alone(case: Case, nodes: bytes, options: Mapping[str, Any] | None = None) -> None:
    """Let another process run every node again.

    Raises:
        CaseError: One of them wants something else.
    """
    asked = {
        "case": asdict(case) | {"options": dict(case.options)},
        "options": {**case.options, **(options or {})},
        "nodes": nodes,
    }
    answer = pickle.loads(apart.ask(child.replay, asked))
    apart.fail(answer)
    if answer["problem"] is not None:
        raise CaseError("incorrect", str(answer["problem"]))


def _judge(played: Played, sizes: Sizes, promised: Optimising, params: Mapping[str, Any], seed: int) -> None:
    problems = broken_laws(played, params, sizes, Paces(params, int(params["nodes"]), seed + 2))
    if promised.by_values and any(COMPUTED[kind] is not Value for _, kind, *_ in played.computed):
        problems.append("it says that it asks for values alone, and asked for a gradient")
    if problems:
        raise CaseError("incorrect", "; ".join(problems))


def prove(case: Case, promised: Optimising, params: Mapping[str, Any], seed: int) -> int:
    """Hold a technique against the plain algorithm to which it reduces; return the iterates that were compared.

    Raises:
        CaseError: It differs.
    """
    reduction = promised.equals
    if reduction is None:
        return 0
    kind = GAME if promised.games else LOGISTIC if promised.private else QUADRATICS
    point = {
        **PROOF,
        "problem": kind,
        "graph": params["graph"],
        "privacy_epsilon": 1e9 if promised.private else 0.0,
    }
    problem = draw(point, int(point["nodes"]), seed + 9)
    played, _, _ = played_by(case, point, seed + 9, reduction.arguments)
    rate = reduction.rate / problem.smoothness
    plain = iterates(reduction.plain, problem, rate, reduction.steps, str(point["graph"]), PROVED_ROUNDS)
    found = _rounds(played, problem, all_report=promised.all_report)[:PROVED_ROUNDS]
    if len(found) < PROVED_ROUNDS:
        raise CaseError(
            "incorrect",
            f"it reported {number_of(len(found), 'model')} where it should equal {reduction.plain}",
        )
    for number, (mine, theirs) in enumerate(zip(found, plain, strict=True), start=1):
        apart = float(np.linalg.norm(mine - theirs)) / max(float(np.linalg.norm(theirs)), 1e-12)
        if not apart <= SAME:
            raise CaseError(
                "incorrect",
                f"with {dict(reduction.arguments)} it is not {reduction.plain}: iterate {number} is off by {apart:.3g}",
            )
    return PROVED_ROUNDS


def _rounds(played: Played, problem: Problem, *, all_report: bool) -> list[Any]:
    """Return reported models in order, or the means of all nodes' first, second, … ones."""
    if not all_report:
        return [model for *_, model in played.reports]
    by_node: dict[int, list[Any]] = {}
    for node, *_, model in played.reports:
        by_node.setdefault(node, []).append(model)
    if len(by_node) < problem.count:
        return []
    return [np.mean(models, axis=0) for models in zip(*by_node.values(), strict=False)]


def _accounting(played: Played, curve: Curve, problem: Problem) -> dict[str, Any]:
    stride = max(1, len(curve.at_s) // 200)
    shown = [
        {"at_s": at_s, "distance": distance, "bits": bits}
        for at_s, distance, bits in list(zip(curve.at_s, curve.distance, curve.bits, strict=True))[::stride]
    ]
    kinds = {kind.__name__: sum(COMPUTED[k] is kind for _, k, *_ in played.computed) for kind in COMPUTED}
    return {
        "label": LABEL,
        "messages": len(played.sent),
        "reports": len(played.reports),
        "computed": {name: count for name, count in kinds.items() if count},
        "noises": sorted({noise for _, noise, _ in played.releases if noise})[:20],
        "smoothness": problem.smoothness,
        "convexity": problem.convexity,
        "distances": shown,
    }
