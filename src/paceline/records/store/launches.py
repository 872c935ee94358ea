"""Which measurements of a record belong together: those of one series, and those of one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any, cast

from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord


def series_of(measurement: Measurement) -> Hashable:
    """Return what measurements of a record share that differ in their launch, and not in suite, block, label or metric.

    What stands for a measurement in an index says so at once: to ask it for these four takes as long as all the rest.
    """
    if type(measurement) is not Measurement:
        series: Hashable = cast(Any, measurement).series
        return series
    return measurement.suite, measurement.block, measurement.label, measurement.metric.name


def last_of_launches(record: RunRecord) -> Iterable[Measurement]:
    """Return of each launch of each technique at each point the last measurement: the metrics of a launch are one."""
    names: dict[Hashable, tuple[str, str, str]] = {}
    found: dict[tuple[tuple[str, str, str], int], Measurement] = {}
    for m in record.measurements:
        series = series_of(m)
        name = names.get(series)
        if name is None:
            name = names[series] = m.suite, m.block, m.label
        found[(name, m.launch)] = m
    return found.values()


def status_counts(record: RunRecord) -> Counter[str]:
    """Count the cases and launches of a run by status, as the run itself does; the metrics of one are one."""
    return Counter(m.status for m in last_of_launches(record))
