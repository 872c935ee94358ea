"""Reads a log of ``coded_gradients`` by code that plays nothing. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.base.counting import number_of
from paceline.families.training.api.coding import Array, Plan, Task
from paceline.families.training.ops.coded_gradients.engine import Played, Round, load_of
from paceline.families.training.ops.coded_gradients.straggling import Straggling
from paceline.families.training.ops.coded_gradients.work import Work

SAME = 1e-6
"""Of a sum of gradients, over the gradient's norm: codes are decoded in float64 by systems that may be steep."""
ROUNDING_S = 1e-9


def broken_laws(played: Played, plan: Plan, params: Mapping[str, Any], straggling: Straggling) -> list[str]:
    """Return which laws of time a log breaks, in words: durations, ends of rounds, and delays of jobs."""
    wrong: list[str] = []
    end_s = 0.0
    for number, of_round in enumerate(played.rounds):
        if of_round.begun_s != end_s:
            wrong.append(
                f"round {number} begins at {of_round.begun_s} s, the one before it ended at {end_s} s"
            )
        end_s = of_round.ended_s
        wrong += _of_round(number, of_round, plan, straggling)
    for rounds, _, job, _ in played.delivered:
        if rounds - 1 > job + plan.delay:
            wrong.append(
                f"job {job} is delivered in round {rounds - 1}, later than its delay of {plan.delay} allows"
            )
    jobs = {job for _, _, job, _ in played.delivered}
    missing = sorted(set(range(int(params["jobs"]))) - jobs)
    if missing:
        wrong.append(
            f"{number_of(len(missing), 'job was', 'jobs were')} never delivered, job {missing[0]} the first of them"
        )
    return wrong[:3]


def _of_round(number: int, of_round: Round, plan: Plan, straggling: Straggling) -> list[str]:
    wrong, last_s = [], of_round.begun_s
    for worker, at_s in of_round.arrived:
        took_s = straggling.duration_s(worker, number, load_of(of_round.tasks[worker], plan.shares))
        if abs(at_s - of_round.begun_s - took_s) > ROUNDING_S * max(at_s, 1.0) or at_s < last_s:
            wrong.append(f"worker {worker} arrived in round {number} at {at_s} s, and needs {took_s} s")
        last_s = at_s
    if of_round.ended_s < last_s:
        wrong.append(f"round {number} ended at {of_round.ended_s} s, before its last arrival at {last_s} s")
    return wrong


def recovery_error(played: Played, plan: Plan, work: Work) -> float:
    """Return how far a delivered sum is from the whole gradient, over its norm, at most.

    Models are moved here by whole gradients, and every result is computed anew from samples' weights: what was played
    enters by tasks and coefficients alone.
    """
    models: list[Array] = [np.zeros(work.inputs.shape[1]) for _ in range(plan.delay + 1)]
    worst = 0.0
    for _, _, job, delivery in played.delivered:
        model = job % len(models)
        off = work.off(job, models[model])
        weights = np.zeros(len(off))
        for (number, worker, place), coefficient in zip(delivery.results, delivery.coefficients, strict=True):
            task = played.rounds[number].tasks[worker][place]
            if task.job != job:
                return float("inf")
            weights += coefficient * sample_weights(task, plan.shares, len(off))
        found = work.inputs.T @ (weights * off) / len(off)
        whole = work.inputs.T @ off / len(off)
        norm = max(float(np.linalg.norm(whole)), 1e-300)
        worst = max(worst, float(np.linalg.norm(found - whole)) / norm)
        models[model] = models[model] - work.rate * whole
    return worst


def sample_weights(task: Task, shares: Sequence[float], count: int) -> Array:
    """Return how much of each sample's gradient a task's result holds, (count,)."""
    ends = np.concatenate([[0.0], np.cumsum(shares)]) * count
    samples = np.arange(count)
    found = np.zeros(count)
    for chunk, coefficient in zip(task.chunks, task.coefficients, strict=True):
        overlap = np.minimum(ends[chunk + 1], samples + 1) - np.maximum(ends[chunk], samples)
        found += coefficient * np.clip(overlap, 0.0, 1.0)
    return found
