"""Identities of contracts: by which id a metric's rules are known, and which ids are part of what a case is.

A contract is identified by its family, its metric and its version, never by its wording: whoever says it better
changes no id, and whoever changes what is measured raises ``Metric.version`` and begins new series.

A case is identified by what its own operation measures. A metric adds to that only what has changed since it came, its
versions behind the first: one that is added or removed begins no series of those beside it, and no operation has a part
in the cases of another.

What was published before there were versions had digests of the wording. They are kept in ``first_contracts.json``,
which is never written again: by family the operations of then, and by the metric's first name the id of its first
version with the unit and the statistic that it stands for. Those ``in_cases`` are part of the ids of all cases of these
operations, as they were then; those ``beside`` are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from paceline.base.aliases import METRICS
from paceline.base.families.family import Metric

FIRST_CONTRACTS = Path(__file__).with_name("first_contracts.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstContracts:
    """What a family had published before contracts had versions."""

    operations: frozenset[str]
    """Operations whose cases are identified by all metrics of then."""
    in_cases: Mapping[str, str]
    """Metric → id of its contract; the same for all of these operations."""
    ids: Mapping[tuple[str, str, str], str]
    """Metric, unit and statistic → id of its contract."""


NOTHING_PUBLISHED = FirstContracts(operations=frozenset(), in_cases={}, ids={})


def contract_id(family: str, metric: Metric, version: int | None = None) -> str:
    """Return the id of the contract that a metric is measured under, 12 hexadecimal digits.

    Args:
        family: The metric's family.
        metric: The metric; its unit and statistic are part of the id, so that no number is ever read in another unit.
        version: A version of before; default: the metric's own.
    """
    version = metric.version if version is None else version
    first = METRICS.first(metric.name), metric.unit, metric.statistic
    if version == 1 and (published := _first_contracts(family).ids.get(first)) is not None:
        return published
    return hashlib.sha256(json.dumps([family, *first, version]).encode()).hexdigest()[:12]


def known_contract_ids(family: str, metric: Metric) -> tuple[str, ...]:
    """Return the ids of all versions of a metric's contract, the oldest first."""
    return tuple(contract_id(family, metric, version) for version in range(1, metric.version + 1))


def identifying_contracts(family: str, operation: str, metrics: Iterable[Metric]) -> dict[str, str]:
    """Return the contracts that are part of what an operation's cases are: first name of the metric → id.

    Args:
        family: The operation's family.
        operation: Its name.
        metrics: What it measures, without what is computed from that.
    """
    first = _first_contracts(family)
    begun = first.in_cases if operation in first.operations else {}
    changed = {METRICS.first(m.name): contract_id(family, m) for m in metrics if m.version > 1}
    return {**begun, **changed}


@cache
def _tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIRST_CONTRACTS.read_bytes())
    return found


@cache
def _first_contracts(family: str) -> FirstContracts:
    table = _tables().get(family)
    if table is None:
        return NOTHING_PUBLISHED
    rows = {**table["in_cases"], **table["beside"]}
    return FirstContracts(
        operations=frozenset(table["operations"]),
        in_cases={name: row[0] for name, row in table["in_cases"].items()},
        ids={(name, unit, statistic): found for name, (found, unit, statistic) in rows.items()},
    )
