"""Results as Prometheus' text format, for dashboards: values, effects and verdicts, in base units.

A series is named by suite, technique, parameters and hardware and never by its run, so that it goes on from night to
night; which run a number is from stands in ``paceline_run_info``. There are no timestamps: node_exporter's collector of
text files takes none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.base.families.family import load_family
from paceline.report.tables.results import HIDDEN_PARAMS
from paceline.report.words.estimates import ends_of_effect, ends_of_value, format_verdict

SUFFIXES = {
    "s": "seconds",
    "B": "bytes",
    "B/s": "bytes_per_second",
    "FLOP/s": "flops",
    "token": "tokens",
    "token/s": "tokens_per_second",
    "1/s": "per_second",
    "ratio": "ratio",
    "1": "",
    "°": "degrees",
}
"""Unit → end of a metric's name; other units stand there themselves."""
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Gauge:
    """One metric of the text: its help, and its samples by what names their series."""

    text: str
    samples: dict[Labels, tuple[Labels, float]] = field(default_factory=dict)
    """Labels that stay → labels that come and go beside them, value."""

    def lines(self, name: str) -> Iterator[str]:
        """Yield its lines."""
        yield f"# HELP {name} {self.text}"
        yield f"# TYPE {name} gauge"
        for labels, (passing, value) in self.samples.items():
            inside = ",".join(f'{key}="{_escape(text)}"' for key, text in (*passing, *labels))
            yield f"{name}{{{inside}}} {value!r}"


class Gauges(dict[str, Gauge]):
    """All metrics of the text by name."""

    def put(self, name: str, text: str, labels: Labels, value: float | None, passing: Labels = ()) -> None:
        """Set a sample in the place of an older one of its series; one without a finite value is none."""
        held = self.setdefault(name, Gauge(text)).samples
        held.pop(labels, None)
        if value is not None and math.isfinite(value):
            held[labels] = passing, float(value)


def prometheus_text(points: Sequence[Point], comparisons: Sequence[Comparison]) -> str:
    """Return the numbers of points as text.

    Where two runs measured one series, the newer one counts. A number without a finite value has no sample.

    Args:
        points: Of one or more runs.
        comparisons: At these points.
    """
    gauges = Gauges()
    order = sorted(points, key=lambda p: p.run.started)
    for point in order:
        _run(gauges, point)
        _values(gauges, point)
        _failures(gauges, point)
    age = {id(p): number for number, p in enumerate(order)}
    for comparison in sorted(comparisons, key=lambda c: age[id(c.point)]):
        _effect(gauges, comparison)
    lines = [line for name in sorted(gauges) if gauges[name].samples for line in gauges[name].lines(name)]
    return "".join(f"{line}\n" for line in lines)


def metric_name(metric: str, unit: str) -> str:
    """Return the name of a metric of the harness, with its unit behind it, as Prometheus wants it."""
    suffix = SUFFIXES.get(unit, unit)
    named = metric if not suffix or metric.endswith(f"_{suffix}") else f"{metric}_{suffix}"
    return "paceline_" + re.sub(r"[^a-zA-Z0-9_]+", "_", named).strip("_")


def _run(gauges: Gauges, point: Point) -> None:
    run, place = point.run, _place(point)
    which = (("run_id", run.run_id), ("commit", str(run.code.get("commit") or "")))
    gauges.put("paceline_run_info", "The run that a suite's numbers are from.", place, 1.0, which)
    began = datetime.fromisoformat(run.started).timestamp()
    gauges.put(
        "paceline_run_started_timestamp_seconds", "When that run began, in seconds since 1970.", place, began
    )


def _values(gauges: Gauges, point: Point) -> None:
    for (label, metric), cell in point.cells.items():
        name, spec = metric_name(metric, cell.unit), load_family(point.family).metric(metric)
        found = point.estimate(label, metric)
        ends = ends_of_value(found, spec.range_of_values, positive=cell.unit == "s")
        labels = (("technique", label), *_where(point))
        gauges.put(name, f"{metric} in {cell.unit}; better: {spec.better}.", labels, found.value)
        for end, value in zip(("low", "high"), ends.drawn(), strict=True):
            gauges.put(f"{name}_{end}", f"The {end} end that is shown beside {name}.", labels, value)
        grade = (("grade", point.grade(label, metric)),)
        text = "1 for the evidence grade of a number, A to D."
        gauges.put(
            "paceline_grade", text, (("technique", label), ("metric", metric), *_where(point)), 1.0, grade
        )


def _effect(gauges: Gauges, c: Comparison) -> None:
    sides = (("technique", c.label), ("baseline", c.point.baseline), ("metric", c.metric))
    where = (*sides, *_where(c.point))
    name = f"paceline_effect_{c.kind}"
    gauges.put(name, f"A technique's {c.kind} to its baseline.", where, c.effect.value)
    for end, value in zip(("low", "high"), ends_of_effect(c.effect, c.kind).drawn(), strict=True):
        gauges.put(f"{name}_{end}", f"The {end} end that is shown beside {name}.", where, value)
    verdict = (("verdict", format_verdict(c.verdict.name, c.unit)),)
    gauges.put("paceline_verdict", "1 for the verdict of a comparison.", where, 1.0, verdict)


def _failures(gauges: Gauges, point: Point) -> None:
    text = "Launches of a technique that gave no number."
    for label in {*point.labels, *point.failures}:
        lost = {m.launch for m in point.failures.get(label, ())}
        labels = (("technique", label), *_where(point))
        gauges.put("paceline_launches_without_number", text, labels, float(len(lost)))


def _place(point: Point) -> Labels:
    suite, host, runner = point.board
    return (("suite", suite), ("host_class", host), ("runner", runner))


def _where(point: Point) -> Labels:
    params = sorted((k, v) for k, v in point.params.items() if v is not None and k not in HIDDEN_PARAMS)
    return (*_place(point), *((f"param_{re.sub(r'[^a-zA-Z0-9_]', '_', k)}", str(v)) for k, v in params))


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
