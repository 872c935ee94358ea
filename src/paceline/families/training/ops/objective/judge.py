"""What no log of nodes may break, read by code that plays nothing. Free of torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paceline.base.families.family import FORMULA_TOLERANCE
from paceline.families.training.api.objective import Sizes, Value
from paceline.families.training.core.planning.graphs import STAR
from paceline.families.training.ops.objective.engine import COMPUTED, Played
from paceline.families.training.ops.objective.paces import Paces
from paceline.families.training.ops.objective.privacy import NEIGHBOURS_SENSITIVITY, epsilon

CLOSE_S = 1e-9
MOST = 5


def broken_laws(played: Played, params: Mapping[str, Any], sizes: Sizes, paces: Paces) -> list[str]:
    """Return what a log breaks, in words; none where it keeps all laws.

    Args:
        played: The log.
        params: Of the point.
        sizes: Of messages, as the technique says.
        paces: Made anew from the seed: it draws the same durations again.
    """
    problems = _computations(played, paces, float(params["horizon"]))
    problems += _messages(played, params, sizes) + _reports(played, params)
    return problems[:MOST]


def _computations(played: Played, paces: Paces, horizon_s: float) -> list[str]:
    value, free_s = COMPUTED.index(Value), defaultdict[int, float](float)
    for node, kind, begin_s, end_s in played.computed:
        if begin_s < free_s[node] - CLOSE_S:
            return [f"node {node} computes twice at {begin_s:.6f} s"]
        took_s = paces.duration_s(node, begin_s, value=kind == value)
        if abs(end_s - begin_s - took_s) > CLOSE_S:
            return [
                f"node {node} computes for {end_s - begin_s:.6f} s from {begin_s:.6f} s, and it takes {took_s:.6f} s"
            ]
        if begin_s > horizon_s:
            return [f"node {node} computes after the horizon"]
        free_s[node] = end_s
    return []


def _messages(played: Played, params: Mapping[str, Any], sizes: Sizes) -> list[str]:
    server = 0 if params["graph"] == STAR else None
    rate, latency_s = float(params["node_rate"]), float(params["node_latency"])
    free_s = defaultdict[int, float](float)
    for sender, receiver, bits, sent_s, at_s in played.sent:
        legal = sizes.server if sender == server else sizes.clients
        if not _is_legal(bits, legal, at_least=sizes.at_least):
            said = ", ".join(map(str, sorted(set(legal)))) or "none"
            return [f"node {sender} sent {bits} bits in a message; by its own formula a message has {said}"]
        free_s[sender] = max(free_s[sender], sent_s) + bits / rate
        if abs(at_s - free_s[sender] - latency_s) > CLOSE_S * max(1.0, at_s):
            return [f"a message from {sender} to {receiver} arrives at {at_s:.6f} s, too early or too late"]
    return []


def _is_legal(bits: int, sizes: Sequence[int], *, at_least: bool) -> bool:
    if at_least:
        return bool(sizes) and min(sizes) <= bits <= max(sizes)
    return any(abs(bits - size) <= FORMULA_TOLERANCE * size for size in sizes)


def _reports(played: Played, params: Mapping[str, Any]) -> list[str]:
    if not played.reports:
        return ["no node ever reported a model"]
    last_s, sent = 0.0, sorted((sent_s, bits) for _, _, bits, sent_s, _ in played.sent)
    totals, number, total = np.cumsum([b for _, b in sent]), 0, 0
    for node, at_s, bits, _, model in played.reports:
        if at_s < last_s:
            return [f"node {node} reported before {last_s:.6f} s, and later"]
        if params["graph"] == STAR and node != 0:
            return [f"client {node} reported a model; the server does"]
        if not np.isfinite(model).all():
            return [f"node {node} reported a model that is not finite"]
        while number < len(sent) and sent[number][0] < at_s:
            number += 1
        total = int(totals[number - 1]) if number else 0
        if bits < total:
            return [f"at {at_s:.6f} s {bits} bits were counted, and {total} were sent"]
        last_s = at_s
    return []


def privacy_spent(played: Played, nodes: int, delta: float) -> float:
    """Return the ε that the least private node's data are left with, at a δ.

    Args:
        played: The log; a gradient or value without noise reveals everything.
        nodes: Nodes with data.
        delta: Above 0.
    """
    ratios: dict[int, list[float]] = {node: [] for node in range(nodes)}
    for node, noise, _ in played.releases:
        ratios[node].append(noise / NEIGHBOURS_SENSITIVITY)
    found = {tuple(r): 0.0 for r in ratios.values()}
    return max((epsilon(r, delta) for r in found), default=0.0)


def wants_too_much(spent: float, allowed: float) -> str | None:
    """Say that more was revealed than a point allows, or None."""
    if allowed <= 0.0 or spent <= allowed * (1.0 + 1e-6):
        return None
    said = (
        "everything: a gradient or value left a node without noise"
        if math.isinf(spent)
        else f"ε = {spent:.4g}"
    )
    return f"its releases reveal {said}, and {allowed:g} is allowed"
