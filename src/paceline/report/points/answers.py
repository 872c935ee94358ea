"""What a technique answered: right answers by level, and some questions with all their traces, for a point's page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.analysis.points import Point
from paceline.base.families.family import SHARE, Bounds
from paceline.report.html import Grid, rows_grid
from paceline.report.layout import layout_of
from paceline.report.words.estimates import ABSENT
from paceline.stats.estimates import wilson
from paceline.stats.paired import Paired, clustered, compare_paired, holm, mcnemar, sign_flip


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one technique did with one question."""

    technique: str
    verdict: str
    traces: tuple[tuple[str, str], ...]
    """How each trace ended, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One question of the first launch."""

    question: str
    level: str
    answer: str
    told: tuple[Told, ...]


def level_grid(point: Point) -> Grid:
    """Return the share of right answers by level, over all launches, with Wilson's interval."""
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    for label in point.labels:
        for levels in _stored(point, label, "right_by_level"):
            for level, (right, asked) in levels.items():
                before = counts.setdefault(level, {}).get(label, (0, 0))
                counts[level][label] = (before[0] + right, before[1] + asked)
    rows = [
        [level, *(_share(counts[level].get(n)) for n in point.labels)] for level in sorted(counts, key=int)
    ]
    return rows_grid("right answers by level", ("level", *point.labels), rows)


def trace_grid(point: Point) -> Grid:
    """Return what single traces answer rightly, a row for each launch: by questions, and where the variance lies."""
    rows = []
    for launch, (right, samples) in enumerate(_stored(point, point.baseline, "right_traces")):
        found = clustered([[1.0] * n + [0.0] * (samples - n) for n in right])
        interval = _interval(found.low, found.high, SHARE, "")
        share = ABSENT if found.share_between is None else f"{found.share_between:.0%}"
        rows.append(
            [str(launch), str(found.num_questions), str(samples), f"{found.mean:.3f}{interval}", share]
        )
    headers = ("launch", "questions", "traces of each", "right", "variance between questions")
    return rows_grid("single traces of the model", headers, rows)


def _interval(low: float | None, high: float | None, bounds: Bounds, sign: str) -> str:
    """Write an interval over questions, inside what shares or their differences can be."""
    if low is None or high is None:
        return ""
    return f" [{max(low, bounds[0]):{sign}.3f}, {min(high, bounds[1]):{sign}.3f}]"


def _share(counted: tuple[int, int] | None) -> str:
    if counted is None:
        return ABSENT
    low, high = wilson(*counted)
    return f"{counted[0] / counted[1]:.0%} [{low:.0%}, {high:.0%}]"


def paired_grid(point: Point) -> Grid:
    """Return each technique beside the baseline on the same questions, pooled over the launches that both have."""
    found = []
    for metric in layout_of(point.family).answers:
        for label in point.labels:
            pair = [point.cells.get((name, metric)) for name in (label, point.baseline)]
            if label == point.baseline or pair[0] is None or pair[1] is None:
                continue
            left, right = pair[0].samples, pair[1].samples
            both = [k for k in sorted(left) if len(left[k]) == len(right.get(k, ()))]
            ours, theirs = ([x for launch in both for x in side[launch]] for side in (left, right))
            found.append((label, metric, ours, theirs))
    tests = [_p_value([a - b for a, b in zip(ours, theirs, strict=True)]) for _, _, ours, theirs in found]
    rows = [
        _paired_row(label, metric, compare_paired(ours, theirs), p_value)
        for (label, metric, ours, theirs), p_value in zip(found, holm(tests), strict=True)
    ]
    headers = ("technique", "metric", "questions", "better", "worse", "difference", "least", "p (Holm)")
    return rows_grid("beside the baseline, question by question", headers, rows)


def _p_value(differences: list[float]) -> float:
    """Test exactly where an answer is right or wrong, and by flipping signs where it is so in a share of orders."""
    if set(differences) <= {-1.0, 0.0, 1.0}:
        return mcnemar(differences.count(1.0), differences.count(-1.0))
    return sign_flip(differences)


def _paired_row(label: str, metric: str, found: Paired, p_value: float) -> list[str]:
    interval = _interval(found.low, found.high, (-1.0, 1.0), "+")
    difference = f"{found.difference:+.3f}{interval}"
    return [
        label,
        metric,
        str(found.num_questions),
        str(found.won),
        str(found.lost),
        difference,
        ABSENT if found.least is None else f"{found.least:.3f}",
        f"{p_value:.2g}",
    ]


def examples(point: Point) -> list[Example]:
    """Return the questions that the first launch kept, with what each technique did."""
    found: dict[str, Example] = {}
    for label in point.labels:
        for kept in _stored(point, label, "examples")[:1]:
            for one in kept:
                known = found.get(one["question"])
                found[one["question"]] = Example(
                    question=one["question"],
                    level=str(one["level"]),
                    answer=one["answer"],
                    told=(*(known.told if known else ()), _told(label, one["answer"], one)),
                )
    return list(found.values())


def _told(label: str, truth: str, one: dict[str, Any]) -> Told:
    given = one["given"]
    right = one.get("right", given == truth)  # free text can be right in other words than the truth's
    verdict = "no answer" if given is None else f"{given}, {'right' if right else 'wrong'}"
    return Told(technique=label, verdict=verdict, traces=tuple((end, text) for end, text in one["traces"]))


def _stored(point: Point, label: str, key: str) -> list[Any]:
    """Return what each launch of a technique keeps under a key of its accounting, the first launch first."""
    found = {
        m.launch: kept
        for (name, _), cell in point.cells.items()
        if name == label
        for m in cell.measurements
        if (kept := (m.accounting or {}).get(key))
    }
    return [found[launch] for launch in sorted(found)]
