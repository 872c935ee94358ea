"""Measures one block of ``influence``: estimates against runs without one displacement, which only the judge makes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from paceline.families.training.api.influence import Array
from paceline.families.training.core import apart
from paceline.families.training.ops.influence import child
from paceline.families.training.ops.influence.gossip import Gossip, true_influence
from paceline.families.training.ops.influence.promises import Influencing
from paceline.worker.ranks.session import Block, Case, CaseError, Session

ORACLE = "runs again without each displacement, in float64; the estimator run again on what it was told; its derivative"
SMALL_RATE = 1e-4
"""At which a derivative is the influence but for this share of it, and curvature times hops."""
SAME = 0.01


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block."""
    seed = session.draw_seed("influence", block.block)
    apart.measure_each(session, block, "influence", lambda case: _measured(block, case, seed))


def _measured(block: Block, case: Case, seed: int) -> dict[str, Any]:
    """Let a technique estimate, run it again alone, prove what it promises, and read the figures.

    Raises:
        CaseError: It breaks the contract or its promise.
    """
    if apart.technique_of(case).promised(Influencing).derivative:
        params = {**block.params, "step_rate": SMALL_RATE}
        estimates, _ = _estimated(case, params, seed, uneven=True)
        off = error_of(estimates, true_influence(Gossip(params, seed, uneven=True)))
        # Written with not: NaN compares false, and proves nothing.
        if not off <= SAME:
            raise CaseError(
                "incorrect",
                f"at a rate of {SMALL_RATE:g} it is off the influence by {off:.3g} of it: it is no derivative",
            )
    estimates, queries = _estimated(case, block.params, seed)
    run = Gossip(block.params, seed)
    metrics = figures(estimates, true_influence(run), run.flipped) | {"influence_queries": float(queries)}
    return {
        "status": "ok",
        "metrics": {name: {"samples": [value]} for name, value in metrics.items()},
        "absent": {} if run.flipped else {"flipped_found": "no peer is flipped"},
        "correctness": {"passed": True, "oracle": ORACLE, "gate_checks": estimates.size},
        "accounting": {"flipped": list(run.flipped)},
    }


def _estimated(
    case: Case, params: Mapping[str, Any], seed: int, *, uneven: bool = False
) -> tuple[Array, int]:
    """Return a technique's estimates, [asked steps, peers], and how much it asked.

    Raises:
        CaseError: It failed, was refused, left steps out, or wants something else when it is alone.
    """
    asked = {
        "case": asdict(case) | {"options": dict(case.options)},
        "params": dict(params),
        "seed": seed,
        "uneven": uneven,
    }
    answer = pickle.loads(apart.ask(child.play, asked))
    apart.fail(answer)
    told = {name: answer[name] for name in ("given", "answers", "wanted")}
    alone = pickle.loads(apart.ask(child.replay, {"case": asked["case"], **told}))
    apart.fail(alone)
    if alone["problem"] is not None:
        raise CaseError("incorrect", f"the estimator: {alone['problem']}")
    steps = answer["given"].steps
    missing = [step for step in steps if step not in answer["estimates"]]
    if missing:
        raise CaseError("incorrect", f"it states no influence of step {missing[0]}")
    return np.stack([answer["estimates"][step] for step in steps]), int(answer["queries"])


def error_of(estimates: Array, truth: Array) -> float:
    """Return the distance of estimates from the truth over its length."""
    return float(np.linalg.norm(estimates - truth) / max(float(np.linalg.norm(truth)), 1e-300))


def correlation(a: Array, b: Array) -> float:
    """Return Pearson's correlation; 0 where one of them does not vary."""
    a, b = a - a.mean(), b - b.mean()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum() / length) if length else 0.0


def figures(estimates: Array, truth: Array, flipped: tuple[int, ...]) -> dict[str, float]:
    """Return the metrics of estimates, [asked steps, peers], but for what was asked."""
    found = {
        "influence_correlation": correlation(estimates, truth),
        "peer_correlation": float(
            np.mean([correlation(e, t) for e, t in zip(estimates, truth, strict=True)])
        ),
        "influence_error": error_of(estimates, truth),
    }
    if flipped:
        # Harm is influence above zero: the loss is higher with the displacement than without it.
        named = np.argsort(-estimates, axis=1, kind="stable")[:, : len(flipped)]
        found["flipped_found"] = float(np.isin(named, flipped).mean())
    return found
