"""Figures of a log that keeps all laws. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.base.families.family import MISSED
from paceline.families.training.api.objective import Value
from paceline.families.training.core.planning.graphs import STAR
from paceline.families.training.ops.objective.engine import COMPUTED, Played
from paceline.families.training.ops.objective.measure import Distance
from paceline.families.training.ops.objective.problems import CLASSES, NONCONVEX, Problem

LAST_SHARE = 0.1
"""Of reports: what a run ends with is their median distance."""
STEADY_SHARE = 0.3
MOST_LOOKED_AT = 2000
"""Reports whose models are looked at, evenly spread: a curve has no more points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Distances at reports."""

    at_s: list[float]
    bits: list[int]
    queries: list[int]
    number: list[int]
    """Reports so far."""
    distance: list[float]


def curve_of(played: Played, distance: Distance, *, all_report: bool) -> Curve:
    """Look at reported models.

    Args:
        played: The log.
        distance: Of a model from the best.
        all_report: Whether every node has a model: then it is the mean distance of all nodes' latest ones.
    """
    reports = played.reports
    stride = 1 if all_report else max(1, len(reports) // MOST_LOOKED_AT)
    latest: dict[int, float] = {}
    found = Curve(at_s=[], bits=[], queries=[], number=[], distance=[])
    for number, (node, at_s, bits, queries, model) in enumerate(reports, start=1):
        if number % stride and number != len(reports):
            continue
        latest[node if all_report else 0] = distance(model)
        found.at_s.append(at_s)
        found.bits.append(bits)
        found.queries.append(queries)
        found.number.append(number)
        found.distance.append(float(np.mean(list(latest.values()))))
    return found


def figures(
    played: Played, curve: Curve, problem: Problem, params: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the metrics of a run, and why some are absent."""
    distances, horizon_s = np.array(curve.distance), float(params["horizon"])
    target = float(params["target"])
    last = max(1, int(LAST_SHARE * len(distances)))
    steady = distances[-max(2, int(STEADY_SHARE * len(distances))) :]
    busy_s = sum(min(end, horizon_s) - begin for _, _, begin, end in played.computed)
    ended_s = min(horizon_s, max((end for *_, end in played.computed), default=horizon_s))
    found = {
        "final_distance": float(np.median(distances[-last:])),
        "distance_deviation": float(steady.std(ddof=1)) if len(steady) > 1 else 0.0,
        "idle_node_share": max(0.0, 1.0 - busy_s / (ended_s * problem.count)),
        "lasted_share": min(1.0, played.reports[-1][1] / horizon_s),
        "sent_bits": float(sum(bits for _, _, bits, _, _ in played.sent)),
        "private_releases": float(len(played.releases) if params["privacy_epsilon"] else 0),
    }
    if problem.kind == NONCONVEX:
        found["squared_gradient_norm"] = float(np.median(distances[-last:]))
    if problem.kind == CLASSES:
        models = [r[4] for r in played.reports[-max(1, int(LAST_SHARE * len(played.reports))) :]]
        found["held_out_accuracy"] = float(np.median([problem.accuracy(m) for m in models[-50:]]))
    below = np.flatnonzero(distances <= target)
    names = (
        "virtual_time_to_target",
        "bits_to_target",
        "client_bits_to_target",
        "queries_to_target",
        "gradients_to_target",
        "messages_to_target",
        "reports_to_target",
    )
    if not len(below):
        reason = (
            f"{MISSED}the distance never came down to {target:g}; it ended at {found['final_distance']:.3g}"
        )
        return found, dict.fromkeys(names, reason)
    first = int(below[0])
    at_s = curve.at_s[first]
    server = 0 if params["graph"] == STAR else None
    up = sum(bits for sender, _, bits, sent_s, _ in played.sent if sender != server and sent_s <= at_s)
    value = COMPUTED.index(Value)
    gradients = sum(kind != value and end_s <= at_s for _, kind, _, end_s in played.computed)
    messages = sum(sent_s <= at_s for *_, sent_s, _ in played.sent)
    values = (at_s, curve.bits[first], up, curve.queries[first], gradients, messages, curve.number[first])
    return found | dict(zip(names, map(float, values), strict=True)), {}
