"""What a record may say of a metric: unit, direction and statistic come from the engine's own tables.

A record repeats them beside each number, so that it can be read without this program. Whoever wrote it could turn the
direction round, and a slower technique would win.
"""

from __future__ import annotations

from functools import lru_cache

from paceline.base.families.contracts import contract_id, known_contract_ids
from paceline.base.families.family import Metric, family_names, load_family
from paceline.records.format.earlier_contracts import EARLIER
from paceline.records.format.record import MetricId

MAX_REMEMBERED = 4096
"""Metrics that are looked up once: more than all families have, and bounded whatever a record names."""


def metric_id(family: str, metric: Metric) -> MetricId:
    """Return what a measurement says of its metric."""
    return MetricId(
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        statistic=metric.statistic,
        contract_id=contract_id(family, metric),
    )


def mistold(family: str, metric: MetricId) -> str | None:
    """Say where a metric is told otherwise than its family tells it, or None.

    Of a contract that is not known here the statistic is another one's, perhaps, and unit and direction are those of
    the metric's name. A metric that this version does not know cannot be held against anything.

    Args:
        family: The family.
        metric: What a measurement says of its metric.
    """
    known = _of_today(family, metric.name)
    if known is None:
        return None
    tells: tuple[str, ...] = (metric.unit, metric.better, metric.statistic)
    told: tuple[str, ...] = (known.unit, known.better, known.statistic)
    if metric.contract_id != contract_id(family, known):
        tells, told = tells[:2], told[:2]
    if tells == told:
        return None
    return f"{metric.name}: by its contract it is {', '.join(told)}, and not {', '.join(tells)}"


def unknown(family: str, metric: MetricId) -> str | None:
    """Say why a metric's contract is not one of this version's or of those before it, or None."""
    today = _of_today(family, metric.name)
    if today is None:
        return f"this version knows no metric '{metric.name}' of the family '{family}'"
    known = *known_contract_ids(family, today), *EARLIER.get(f"{family}/{metric.name}", ())
    if metric.contract_id in known:
        return None
    return f"{metric.name}: this version knows no contract {metric.contract_id} of it"


def impossible(family: str, metric: MetricId, samples: list[float]) -> str | None:
    """Say which sample cannot be one of its metric, or None: a call that takes no time was not measured."""
    known = _of_today(family, metric.name)
    if known is None or metric.unit != "s" or metric.name != load_family(family).default_metrics[0]:
        return None  # parts of a call, such as what is exposed of its communication, may take none
    if min(samples, default=1.0) > 0:
        return None
    return f"{metric.name}: a sample of {min(samples):g} s"


@lru_cache(MAX_REMEMBERED)
def _of_today(family: str, name: str) -> Metric | None:
    metrics = load_family(family).metrics if family in family_names() else ()
    return next((metric for metric in metrics if metric.name == name), None)
