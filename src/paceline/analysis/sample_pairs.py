"""Compares logs of samples of the same items: each against the first, with clusters, and adjusted for how many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError, expected_one_of
from paceline.records.imports.sample_logs import SampleLog, metrics, variants
from paceline.stats.clusters import ClusteredDifference, clustered_difference
from paceline.stats.paired import holm, mcnemar


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A log under one metric."""

    name: str
    tool: str
    metric: str
    values: Mapping[str, float]
    """By item: the mean of its samples."""
    fields: Mapping[str, Mapping[str, Any]]
    targets: Mapping[str, str]
    """By item: what the log holds to be right; empty where it does not say."""

    @property
    def mean(self) -> float:
        """The mean over items."""
        return sum(self.values.values()) / len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePair:
    """One log against the first, on the items of both."""

    side: Side
    found: ClusteredDifference
    won: int
    lost: int
    exact_p: float | None
    """McNemar's, where every item is 0 or 1 and a cluster of its own."""
    adjusted_p: float | None
    """Of the clustered t-test, by Holm over all logs that are compared."""
    only_first: int
    only_other: int
    """Items that one of the two has alone."""


def side_of(log: SampleLog, metric: str | None) -> Side:
    """Return a log under a metric; without one under its first.

    Raises:
        UserError: It has no such metric, or several variants of it.
    """
    known = metrics(log)
    if metric is not None and metric not in known:
        raise UserError(
            f"it has no metric '{metric}'",
            where=log.name,
            expected=expected_one_of(metric, known),
            fix=f"--metric={known[0]}",
        )
    chosen = metric or known[0]
    several = variants(log, chosen)
    if len(several) > 1:
        raise UserError(
            f"'{chosen}' is there {len(several)} times: {', '.join(several)}",
            where=log.name,
            expected="one filter, scorer or method",
            fix=f"{log.name}#{several[0]}",
        )
    values: dict[str, list[float]] = defaultdict(list)
    fields: dict[str, Mapping[str, Any]] = {}
    targets: dict[str, str] = {}
    for one in log.scored:
        if one.metric == chosen:
            values[one.item].append(one.value)
            fields[one.item] = one.fields
            targets[one.item] = one.target
    means = {item: sum(each) / len(each) for item, each in values.items()}
    return Side(name=log.name, tool=log.tool, metric=chosen, values=means, fields=fields, targets=targets)


def compare_samples(
    sides: Sequence[Side], *, cluster: str | None = None, partial: bool = False
) -> tuple[SamplePair, ...]:
    """Compare every log after the first with the first.

    Args:
        sides: Two or more.
        cluster: Field of an item by which items are grouped; None makes each its own.
        partial: Compare what both have where they have not the same items.

    Raises:
        UserError: They have not the same items, an item has two right answers, or one lacks the field.
    """
    first, *others = sides
    pairs = [_pair(first, other, cluster, partial) for other in others]
    adjusted = holm([1.0 if one.found.p_value is None else one.found.p_value for one in pairs])
    return tuple(
        SamplePair(
            side=one.side,
            found=one.found,
            won=one.won,
            lost=one.lost,
            exact_p=one.exact_p,
            adjusted_p=None if one.found.p_value is None else p,
            only_first=one.only_first,
            only_other=one.only_other,
        )
        for one, p in zip(pairs, adjusted, strict=True)
    )


def _pair(first: Side, other: Side, cluster: str | None, partial: bool) -> SamplePair:
    common = [item for item in first.values if item in other.values]
    only_first, only_other = len(first.values) - len(common), len(other.values) - len(common)
    if not common or ((only_first or only_other) and not partial):
        raise UserError(
            f"{number_of(len(common), 'item is', 'items are')} in both, {only_first} in {first.name} alone, "
            f"{only_other} in {other.name} alone",
            where=other.name,
            expected="logs of the same items",
            fix="--allow-partial compares those of both"
            if common
            else "name logs of one task and one data set",
        )
    _refuse_other_targets(first, other, common)
    left, right = ([side.values[item] for item in common] for side in (other, first))
    groups = [_cluster(first, item, cluster) for item in common]
    won, lost = (
        sum(a > b for a, b in zip(left, right, strict=True)),
        sum(a < b for a, b in zip(left, right, strict=True)),
    )
    binary = all(value in (0.0, 1.0) for value in (*left, *right)) and cluster is None
    return SamplePair(
        side=other,
        found=clustered_difference(left, right, groups),
        won=won,
        lost=lost,
        exact_p=mcnemar(won, lost) if binary else None,
        adjusted_p=None,
        only_first=only_first,
        only_other=only_other,
    )


def _refuse_other_targets(first: Side, other: Side, common: Sequence[str]) -> None:
    """Refuse items that only share a name: data sets whose items are numbered have the same numbers.

    Raises:
        UserError: Two logs hold another answer of an item to be right.
    """
    unlike = [
        item
        for item in common
        if first.tool == other.tool
        and first.targets[item]
        and other.targets[item]
        and first.targets[item] != other.targets[item]
    ]
    if unlike:
        item = unlike[0]
        raise UserError(
            f"{number_of(len(unlike), 'item has', 'items have')} another right answer than in {first.name}: of item "
            f"{item}, {other.targets[item]:.60} and {first.targets[item]:.60}",
            where=other.name,
            expected="logs of the same items",
            fix="name logs of one data set in one version",
        )


def _cluster(side: Side, item: str, field: str | None) -> str:
    if field is None:
        return item
    fields = side.fields[item]
    if field not in fields:
        raise UserError(
            f"item {item} has no field '{field}'",
            where=f"--cluster={field}",
            expected=expected_one_of(field, sorted(map(str, fields))),
        )
    return str(fields[field])
