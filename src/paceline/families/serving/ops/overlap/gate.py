"""What no order of nano-batches may break: the judge of orderings. Free of torch.

Every row of every operator is computed once in every layer, after the rows that it needs; a nano-batch takes its time
alone over what its share reaches; and shares of what is computed at the same time sum to at most one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from paceline.families.serving.api.overlapping import Given, NanoBatch, Operator

CLOSE_S = 1e-12
CLOSE = 1e-9
MOST = 5


def end_s(batch: NanoBatch, given: Given, operators: Mapping[str, Operator]) -> float:
    """Return when a nano-batch ends."""
    operator = operators[batch.operator]
    alone_s = given.alone_s(operator, batch.end - batch.begin)
    return batch.begin_s + alone_s / given.performance(operator.kind, batch.share)


def broken_laws(batches: Sequence[NanoBatch], given: Given) -> list[str]:
    """Return what an order breaks, in words; none where it keeps all laws."""
    operators = {o.name: o for o in given.operators}
    problems = [p for b in batches if (p := _malformed(b, given, operators))]
    if problems:
        return problems[:MOST]
    placed: dict[tuple[int, str], list[tuple[int, int, float, float]]] = defaultdict(list)
    for batch in batches:
        placed[batch.layer, batch.operator].append(
            (batch.begin, batch.end, batch.begin_s, end_s(batch, given, operators))
        )
    for rows in placed.values():
        rows.sort()
    problems = _rows(placed, given) or _waited(placed, given, operators)
    problems += _shares(batches, given, operators)
    return problems[:MOST]


def _malformed(batch: NanoBatch, given: Given, operators: Mapping[str, Operator]) -> str | None:
    operator = operators.get(batch.operator)
    if operator is None or not 0 <= batch.layer < given.layers:
        return f"layer {batch.layer} has no operator '{batch.operator}'"
    if not operator.first <= batch.begin < batch.end <= operator.last:
        return f"{_named(batch)} is not within rows {operator.first} to {operator.last}"
    if not 0.0 < batch.share <= 1.0:
        return f"{_named(batch)} has a share of {batch.share}, which is not above 0 and at most 1"
    if not (math.isfinite(batch.begin_s) and batch.begin_s >= 0.0):
        return f"{_named(batch)} begins at {batch.begin_s} s"
    return None


def _named(batch: NanoBatch) -> str:
    return f"{batch.operator} of layer {batch.layer}, rows {batch.begin} to {batch.end},"


def _rows(
    placed: Mapping[tuple[int, str], Sequence[tuple[int, int, float, float]]], given: Given
) -> list[str]:
    problems: list[str] = []
    for layer in range(given.layers):
        for operator in given.operators:
            row = operator.first
            for begin, end, *_ in placed.get((layer, operator.name), ()):
                if begin != row:
                    break
                row = end
            if row != operator.last:
                where = f"{operator.name} of layer {layer}"
                problems.append(f"{where}: row {row} is not computed once, or out of its nano-batch")
    return problems


def _waited(
    placed: Mapping[tuple[int, str], Sequence[tuple[int, int, float, float]]],
    given: Given,
    operators: Mapping[str, Operator],
) -> list[str]:
    problems: list[str] = []
    for (layer, name), batches in placed.items():
        operator = operators[name]
        before = [(layer, other) for other in operator.after]
        if not before:
            before = [(layer - 1, given.operators[-1].name)] if layer else []
        for begin, end, begin_s, _ in batches:
            for key in before:
                first = operator.needs(begin, operators[key[1]])
                late = [p for p in placed[key] if p[0] < end and p[1] > first and p[3] > begin_s + CLOSE_S]
                if late:
                    rows = f"rows {late[0][0]} to {late[0][1]}"
                    problems.append(
                        f"{name} of layer {layer}, rows {begin} to {end}, begins before {key[1]} of "
                        f"layer {key[0]} has ended for {rows}"
                    )
    return problems


def _shares(batches: Sequence[NanoBatch], given: Given, operators: Mapping[str, Operator]) -> list[str]:
    changes: list[tuple[float, float]] = []
    for batch in batches:
        # what ends at an instant makes room for what begins there, rounding aside
        changes += [(batch.begin_s + CLOSE_S, batch.share), (end_s(batch, given, operators), -batch.share)]
    used = 0.0
    for at_s, change in sorted(changes):
        used += change
        if used > 1.0 + CLOSE:
            return [f"shares sum to {used:.3f} at {at_s:.9f} s"]
    return []
