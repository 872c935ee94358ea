"""A record as rows of a table: one for each measurement, as exports, data frames and the Parquet cache have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from paceline.records.store.folder import RunRecord

MEASUREMENT_COLUMNS = (
    "record_id",
    "run_id",
    "started",
    "host_class",
    "runner",
    "suite",
    "family",
    "case_id",
    "series_key",
    "block",
    "label",
    "technique",
    "role",
    "launch",
    "metric",
    "unit",
    "value",
    "n",
    "status",
    "reason",
    "params",
    "samples",
)
"""Columns of the long table of measurements."""


def measurement_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Flatten a record's measurements into rows for tables and exports."""
    for m in record.measurements:
        yield {
            "record_id": m.record_id,
            "run_id": m.run_id,
            "started": record.run.started,
            "host_class": record.run.host_class,
            "runner": record.run.runner.get("name"),
            "suite": m.suite,
            "family": m.family,
            "case_id": m.case_id,
            "series_key": m.series_key,
            "block": m.block,
            "label": m.label,
            "technique": m.technique,
            "role": m.role,
            "launch": m.launch,
            "metric": m.metric.name,
            "unit": m.metric.unit,
            "value": m.value,
            "n": m.n,
            "status": m.status,
            "reason": m.reason,
            "params": json.dumps(m.params, sort_keys=True),
            "samples": list(m.samples),
        }
