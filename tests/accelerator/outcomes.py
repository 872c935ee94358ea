"""Reads outcomes from a record for the tests of this folder."""

from __future__ import annotations

from statistics import median

from paceline.records.store.folder import RunRecord


def troubles(record: RunRecord) -> list[str]:
    """Return what did not come out well, with the reason."""
    found = {f"{m.label}: {m.status}: {m.reason}" for m in record.measurements if m.status != "ok"}
    assert record.measurements
    return sorted(found)


def median_of(record: RunRecord, technique: str, metric: str) -> float:
    """Return a metric's median over launches."""
    return median(
        m.value
        for m in record.measurements
        if m.label == technique and m.metric.name == metric and m.value is not None
    )
