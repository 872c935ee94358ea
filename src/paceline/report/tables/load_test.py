"""What a load test has found, as a person reads it: one column for each server, and what the client says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.base.counting import number_of
from paceline.base.families.family import load_family
from paceline.base.units import format_duration
from paceline.records.format.record import Measurement
from paceline.report.tables.results import Table, format_counts
from paceline.report.words.estimates import ABSENT, format_effect, format_estimate, verdict_text

ROWS: tuple[tuple[str, str], ...] = (
    ("ttft_p50", "time to first token, p50"),
    ("ttft_p90", "p90"),
    ("ttft_p99", "p99"),
    ("tpot_p50", "time per output token, p50"),
    ("tpot_p90", "p90"),
    ("itl_p50", "gap between pieces, p50"),
    ("itl_p99", "p99"),
    ("first_answer_p50", "first token behind the thinking, p50"),
    ("e2e_p50", "time to last token, p50"),
    ("e2e_p99", "p99"),
    ("e2e_mean", "mean"),
    ("output_tokens_per_s", "output tokens"),
    ("requests_per_s", "whole answers"),
    ("goodput", "answers that met the objectives"),
    ("slo_attainment", "share that met the objectives"),
    ("failed", "share that failed"),
    ("max_rate", "highest rate that meets the objectives"),
)
FAILING = "too many calls failed"
"""How the reason begins for which a metric has no value though it might have one."""
WORKLOADS: Mapping[str, str] = {
    "independent": "independent calls",
    "sessions": "sessions",
    "workflows": "workflows of agents",
    "shared-prefixes": "calls with shared prefixes",
}


def load_tables(points: Sequence[Point], comparisons: Sequence[Comparison]) -> list[Table]:
    """Return a table for each point: figures of every server, and of two or more how they differ from the first."""
    return [_table(p, [c for c in comparisons if c.point.block == p.block]) for p in points]


def _table(point: Point, comparisons: Sequence[Comparison]) -> Table:
    labels = _labels(point)
    others = labels[1:]
    found = {(c.label, c.metric): c for c in comparisons}
    headers = ["", *labels]
    for label in others:
        headers += [f"{label} against {labels[0]}", "verdict"]
    rows = []
    lacking = _lacking(point)
    for metric, title in ROWS:
        if not any((label, metric) in point.cells or metric in lacking for label in labels):
            continue
        row = [title, *(_value(point, label, metric) for label in labels)]
        for label in others:
            c = found.get((label, metric))
            row += [ABSENT, ""] if c is None else [_effect(c), verdict_text(c)]
        rows.append(tuple(row))
    rows = rows or [("no figure", *([ABSENT] * (len(headers) - 1)))]
    notes = [_objectives(point), _window(point), *(note for label in labels for note in _notes(point, label))]
    notes += _alike(point, labels)
    return Table(
        title=_title(point),
        headers=tuple(headers),
        rows=tuple(rows),
        notes=tuple(notes),
        failures=tuple(_failures(point)),
    )


def _labels(point: Point) -> list[str]:
    """Return all servers, the baseline first, also those without a number."""
    known = {*point.labels, *point.failures}
    return sorted(known, key=lambda name: (name != point.baseline, name))


def _value(point: Point, label: str, metric: str) -> str:
    cell = point.cells.get((label, metric))
    if cell is None:
        return ABSENT
    bounds = load_family(point.family).metric(metric).bounds
    return format_estimate(point.estimate(label, metric), cell.unit, bounds)


def _effect(comparison: Comparison) -> str:
    return format_effect(comparison.effect, comparison.kind, verdict=comparison.verdict.name)


def _title(point: Point) -> str:
    params = point.params
    if params["arrivals"] == "closed":
        each = {"sessions": "sessions ", "workflows": "workflows "}.get(str(params["workload"]), "")
        how = f"closed loop of {params['concurrency']} {each}at a time"
    elif params["arrivals"] == "at-once":
        how = "all at once"
    else:
        arrivals = {"trace": "the trace's instants"}.get(str(params["arrivals"]), params["arrivals"])
        how = f"{arrivals}, {float(str(params['rate_per_s'])):.4g}/s"
    what = WORKLOADS.get(str(params["workload"]), f"trace ({params['trace_format']})")
    return f"{what}: {how}, {number_of(params['requests'], 'call')} a launch"


def _lacking(point: Point) -> set[str]:
    """Return the metrics that have no value in some launch since too many of its calls failed."""
    measured = [m for cell in point.cells.values() for m in cell.measurements]
    return {name for m in measured for name, reason in (m.absent or {}).items() if reason.startswith(FAILING)}


def _objectives(point: Point) -> str:
    first, each = (format_duration(float(str(point.params[key]))) for key in ("slo_ttft", "slo_tpot"))
    return f"objectives of a call: first token within {first}, then {each} a token (--slo)"


def _window(point: Point) -> str:
    """Say what comes before the figures, and over which time they are."""
    warm = number_of(int(str(point.params["warm_up_calls"])), "call")
    over = (
        ""
        if point.params["until_saturated"]
        else "; output tokens are those behind the first tenth of the load"
    )
    return f"before each launch {warm} to warm up (--warm-up){over}"


def _measurements(point: Point, label: str) -> list[Measurement]:
    """Return one measurement for each launch, whose accounting all of the launch share."""
    own = [m for (name, _), cell in point.cells.items() if name == label for m in cell.measurements]
    # one of a case's measurements has what all of them share
    by_launch = {m.launch: m for m in [*own, *point.failures.get(label, [])] if m.accounting}
    return [by_launch[n] for n in sorted(by_launch)]


def _notes(point: Point, label: str) -> Iterator[str]:
    """Say what became of a server's calls, how long they were, what the server says, and what the client was like."""
    all_of = [a for m in _measurements(point, label) if (a := _accounting(m))]
    if not all_of:
        return
    counted: dict[str, int] = {}
    for facts in all_of:
        for kind, number in (facts.get("outcomes") or {}).items():
            counted[kind] = counted.get(kind, 0) + int(number)
    if counted:
        yield f"{label}: calls: {format_counts(counted.items())} in {number_of(len(all_of), 'launch')}"
    reasons = dict.fromkeys(reason for facts in all_of for reason in facts.get("reasons") or ())
    if reasons:
        yield f"{label}: {'; '.join(reasons)}"
    last = all_of[-1]
    server, client = last.get("server") or {}, last.get("client") or {}
    if "prompt_tokens" in server:
        yield f"{label}: {_lengths(server)}"
    yield from (f"{label}: WARNING: {said}" for said in server.get("surprises") or ())
    yield from (f"{label}: {text}" for text in _server_says(server.get("metrics") or {}))
    if client:
        yield (
            f"{label}: the client used {100 * client['cpu_share']:.0f} % of a core, "
            f"{format_duration(client['cpu_per_call_s'])} a call; sent "
            f"{_late(client)} late (p99); real-time priority: {'yes' if client['urgent'] else 'no'}"
        )
    if last.get("search"):
        steps = last["search"]
        yield (
            f"{label}: {number_of(len(steps), 'rate')} tried: "
            + ", ".join(f"{s['rate_per_s']:.3g}/s {'kept' if s['carried'] else 'missed'}" for s in steps)
        )


def _lengths(server: Mapping[str, Any]) -> str:
    """Say how long prompts and answers were, by whose count."""
    counted, asked = server["prompt_tokens"], server.get("prompt_tokens_asked")
    cached = server.get("cached_prompt_tokens")
    found = f", {cached:.0f} of them from its cache" if cached else ""
    answer = f"an answer {server.get('answer_tokens', 0):.0f} of {server['answer_tokens_asked']:.0f}"
    if (tokenizer := server.get("tokenizer")) and asked is not None:
        around = " with special tokens and a template" if round(counted) > round(asked) else ""
        return (
            f"a prompt has {number_of(asked, 'token', form='.0f')} by the tokenizer {tokenizer['name']} and "
            f"{counted:.0f}{around} by the server's count{found}, {answer}"
        )
    meant = "" if asked is None else f" of {asked:.0f} that were meant"
    return f"a prompt has {number_of(counted, 'token', form='.0f')}{meant} by the server's count{found}, {answer}"


def _late(client: Mapping[str, Any]) -> str:
    late = client.get("lateness_p99_s")
    return ABSENT if late is None else format_duration(late)


def _accounting(measurement: Measurement) -> dict[str, Any]:
    return dict(measurement.accounting or {})


def _server_says(metrics: Mapping[str, float]) -> Iterator[str]:
    """Name the server's own times beside the client's."""
    for name, value in metrics.items():
        if name.endswith("_seconds_mean") and any(
            k in name for k in ("first_token", "per_output_token", "inter_token", "e2e")
        ):
            yield f"the server itself says {name.removesuffix('_seconds_mean')}: {format_duration(value)} (mean)"


def _alike(point: Point, labels: Sequence[str]) -> Iterator[str]:
    """Say how many answers two servers gave alike, word for word."""
    for label in labels[1:]:
        pairs = [(_answers(a), _answers(b)) for a, b in _shared(point, labels[0], label)]
        both = [(a[n], b[n]) for a, b in pairs for n in a.keys() & b.keys()]
        if both:
            same = sum(x == y for x, y in both)
            yield f"{labels[0]} and {label}: {same} of {number_of(len(both), 'answer')} are the same, word for word"


def _shared(point: Point, first: str, second: str) -> list[tuple[Measurement, Measurement]]:
    one = {m.launch: m for m in _measurements(point, first)}
    other = {m.launch: m for m in _measurements(point, second)}
    return [(one[n], other[n]) for n in sorted(one.keys() & other.keys())]


def _answers(measurement: Measurement) -> Mapping[str, str]:
    return dict((_accounting(measurement).get("server") or {}).get("answers") or {})


def _failures(point: Point) -> Iterator[str]:
    for label, failed in sorted(point.failures.items()):
        for reason in dict.fromkeys(str(m.reason) for m in failed):
            yield f"{label}: no number: {reason}"
