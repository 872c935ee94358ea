"""Runs as pytest-benchmark JSON: one benchmark for each technique, point and duration, with its raw samples.

The samples of all launches stand in one list, because the format knows no launches; ``extra_info.paceline`` says how
many belong to which launch. Statistics are pytest-benchmark's (mean over all samples), not ours (over launches).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline import __version__
from paceline.analysis.points import Cell, Point, grade_of, points_of
from paceline.base.errors import UserError
from paceline.records.store.folder import RunRecord
from paceline.report.exports.choice import Choice, left_out

SCHEMA_VERSION = "5.1.0"
"""Release of pytest-benchmark whose layout this is."""
DURATION = "s"


def document(records: Sequence[RunRecord], choice: Choice) -> dict[str, Any]:
    """Return the document.

    Raises:
        UserError: No chosen measurement is a duration.
    """
    benchmarks = [
        benchmark(point, cell)
        for record in records
        for point in points_of(record)
        for cell in _cells(point, choice)
    ]
    if not benchmarks:
        raise UserError(
            "nothing to export: pytest-benchmark knows durations only",
            expected="runs with metrics in seconds",
            fix="paceline export csv",
        )
    first = records[0].run
    host = first.host or {}
    return {
        "machine_info": {
            "node": first.host_class,
            "processor": host.get("cpu"),
            "machine": host.get("machine"),
            "system": host.get("system"),
            "python_version": (first.packages or {}).get("python"),
            "cpu": {"brand_raw": host.get("cpu"), "count": host.get("usable_cores")},
        },
        "commit_info": {
            "id": first.code.get("commit"),
            "dirty": first.code.get("dirty"),
            "project": "paceline",
        },
        "benchmarks": benchmarks,
        "datetime": first.started,
        "version": SCHEMA_VERSION,
        "paceline": {
            "version": __version__,
            "runs": [r.run_id for r in records],
            "left_out": left_out(records, choice),
        },
    }


def _cells(point: Point, choice: Choice) -> Iterable[Cell]:
    for (label, metric), cell in point.cells.items():
        wanted = not choice.techniques or {label, cell.technique} & set(choice.techniques)
        if cell.unit == DURATION and wanted and (not choice.metrics or metric in choice.metrics):
            yield cell


def benchmark(point: Point, cell: Cell) -> dict[str, Any]:
    """Return one benchmark: its name tells technique and metric, its group the point."""
    launches = sorted(cell.samples)
    samples = [sample for launch in launches for sample in cell.samples[launch]]
    params = dict(point.params)
    shown = "-".join(f"{k}={v}" for k, v in sorted(params.items()) if v is not None)
    name = f"{cell.label}[{cell.metric}]"
    return {
        "group": f"{point.suite} {cell.metric} {shown}",
        "name": name,
        "fullname": f"{point.suite}::{cell.label}[{cell.metric}-{shown}]",
        "params": params,
        "param": shown,
        "extra_info": {
            "paceline": {
                "run_id": point.run.run_id,
                "suite": point.suite,
                "suite_version": point.suite_version,
                "technique": cell.label,
                "metric": cell.metric,
                "contract_id": cell.contract_id,
                "grade": grade_of(point.run, len(launches), flags=cell.flags),
                "launch_samples": {str(n): len(cell.samples[n]) for n in launches},
                "launch_values": {str(n): cell.values[n] for n in launches},
                "flags": sorted(cell.flags),
            }
        },
        "options": {},
        "stats": {**summary(samples), "data": samples, "iterations": 1},
    }


def summary(samples: Sequence[float]) -> Mapping[str, Any]:
    """Return pytest-benchmark's statistics: mean over samples, Hazen's quartiles, Tukey's fences at 1.5 IQR."""
    data = np.asarray(samples, dtype=np.float64)
    q1, q3 = (float(q) for q in np.quantile(data, (0.25, 0.75), method="hazen"))
    mean = statistics.mean(samples)
    spread = statistics.stdev(samples) if len(samples) > 1 else 0.0
    fence = 1.5 * (q3 - q1)
    inside = data[(data >= q1 - fence) & (data <= q3 + fence)]
    far = int(np.count_nonzero((data < mean - spread) | (data > mean + spread)))
    total = sum(samples)
    return {
        "min": min(samples),
        "max": max(samples),
        "mean": mean,
        "stddev": spread,
        "rounds": len(samples),
        "median": statistics.median(samples),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(samples) - inside.size,
        "stddev_outliers": far,
        "outliers": f"{far};{len(samples) - inside.size}",
        "ld15iqr": float(inside.min()),
        "hd15iqr": float(inside.max()),
        "ops": len(samples) / total if total else 0,
        "total": total,
    }
