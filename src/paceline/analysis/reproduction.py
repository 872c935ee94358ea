"""Did measuring a record again give the same? Techniques against their baselines, then one verdict.

Two runs are never interleaved, so the machine may have been slower throughout one of them. What is compared is
therefore each technique's ratio to the baseline that shared its launches; only where a point has nothing but its
baseline do the times themselves stand against each other. ``different`` needs the whole interval outside the margin.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.analysis.compare import adjusted
from paceline.analysis.points import Cell, Point, compared, points_of
from paceline.analysis.runs import incomparable
from paceline.base.families.family import load_family
from paceline.records.store.folder import RunRecord
from paceline.stats.estimates import Estimate, Launches
from paceline.stats.unpaired import compare_unpaired, compare_unpaired_difference
from paceline.stats.verdicts import Kind, judge

Answer = Literal["equivalent", "different", "inconclusive", "cannot"]
MARGIN = 0.05
"""Least margin of ratios: processes that are started anew differ by some percent in where their memory lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One series in the record and now."""

    text: str
    effect: Estimate
    kind: Kind
    margin: float
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """What became of measuring a record again."""

    answer: Answer
    reasons: tuple[str, ...] = ()
    """What differs, or what is missing."""
    forced: str | None = None
    """Why the two must not be compared, where a person asked for it all the same."""
    series: tuple[Compared, ...] = field(default=(), repr=False)

    def text(self) -> str:
        """Say it, with the reasons below."""
        counts = ", ".join(
            f"{n} {name}"
            for name in ("equivalent", "different", "inconclusive")
            if (n := sum(s.answer == name for s in self.series))
        )
        mark = f"FORCED, NOT COMPARABLE ({self.forced}): " if self.forced else ""
        lines = [f"verdict: {mark}{self.answer}" + (f" ({counts})" if counts else "")]
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


def cannot(*missing: str) -> Reproduction:
    """Return that it could not be measured again, and what is missing."""
    return Reproduction(answer="cannot", reasons=missing)


def judge_reproduction(again: RunRecord, record: RunRecord, *, force: bool = False) -> Reproduction:
    """Compare what was measured now with a record of the same cases; by force also where that says nothing, marked."""
    reason = incomparable(again.run, record.run)
    if reason is not None and not force:
        return cannot(reason)
    return replace(_judged(again, record), forced=reason)


def _judged(again: RunRecord, record: RunRecord) -> Reproduction:
    if not any(m.status == "ok" for m in again.measurements):
        reasons = dict.fromkeys(f"{m.label}: {m.status}: {m.reason}" for m in again.measurements)
        return cannot(*reasons) if reasons else cannot("nothing was measured")
    series = _series(again, record)
    failed = _failed(again, record)
    different = [s.text for s in series if s.answer == "different"]
    if failed or different:
        return Reproduction(answer="different", reasons=(*failed, *different), series=series)
    complete = all(m.status == "ok" for m in again.measurements)
    if complete and series and all(s.answer == "equivalent" for s in series):
        return Reproduction(answer="equivalent", series=series)
    return Reproduction(answer="inconclusive", series=series)


def _failed(again: RunRecord, record: RunRecord) -> list[str]:
    """Return techniques that had a result in the record and have none now, for reasons of their own."""
    measured = {(m.suite, m.block, m.label) for m in record.measurements if m.status == "ok"}
    return list(
        dict.fromkeys(
            f"{m.suite} {m.label}: {m.status}: {m.reason}"
            for m in again.measurements
            if m.status not in ("ok", "infrastructure") and (m.suite, m.block, m.label) in measured
        )
    )


def _series(again: RunRecord, record: RunRecord) -> tuple[Compared, ...]:
    then = {_key(p): p for p in points_of(record)}
    drafts: list[tuple[str, Estimate, Kind, float, str]] = []
    for now in points_of(again):
        other = then.get(_key(now))
        if other is not None:
            drafts += _drafts(now, other)
    q_values = adjusted([d[1] for d in drafts])
    return tuple(
        Compared(
            text=f"{text}: {effect.value:.4g}{' ×' if kind == 'ratio' else ' more than'} the record's",
            effect=effect,
            kind=kind,
            margin=margin,
            answer=_answer(effect, kind, margin, better, q),
        )
        for (text, effect, kind, margin, better), q in zip(drafts, q_values, strict=True)
    )


def _key(point: Point) -> tuple[str, str]:
    return point.suite, json.dumps(dict(point.params), sort_keys=True)


def _drafts(now: Point, then: Point) -> list[tuple[str, Estimate, Kind, float, str]]:
    found: list[tuple[str, Estimate, Kind, float, str]] = []
    margins = compared(now.run, now.suite)
    for (label, name), cell in sorted(now.cells.items()):
        before = then.cells.get((label, name))
        if name not in margins or before is None or before.contract_id != cell.contract_id:
            continue
        kind = load_family(now.family).metric(name).compared_by
        text = f"{now.suite} {label} {name}"
        if kind == "difference":
            effect = compare_unpaired_difference(cell.launches, before.launches)
            found.append((text, effect, kind, margins[name], cell.better))
            continue
        sides = [_against_baseline(now, cell), _against_baseline(then, before)]
        if all(side is not None for side in sides):
            text += f" against {now.baseline}"
        elif label != now.baseline or _others(now, name) & _others(then, name):
            continue
        left, right = (s or c.launches for s, c in zip(sides, (cell, before), strict=True))
        found.append((text, compare_unpaired(left, right), kind, max(margins[name], MARGIN), cell.better))
    return found


def _others(point: Point, metric: str) -> set[str]:
    """Return the techniques beside the baseline that have a number."""
    return {label for label, name in point.cells if name == metric and label != point.baseline}


def _against_baseline(point: Point, cell: Cell) -> Launches | None:
    """Return a technique's ratio to the baseline in every launch that they shared; None for the baseline itself."""
    base = point.cells.get((point.baseline, cell.metric))
    if base is None or cell.label == point.baseline:
        return None
    shared = [n for n in cell.values if base.values.get(n, 0.0) > 0]
    if not shared:
        return None
    return Launches(
        values={n: cell.values[n] / base.values[n] for n in shared},
        samples={},
        statistic=cell.launches.statistic,
        busy=cell.busy,
    )


def _answer(effect: Estimate, kind: Kind, margin: float, better: str, q_value: float | None) -> Answer:
    """Return ``different`` where the whole interval lies outside the margin, ``equivalent`` where it lies inside."""
    if effect.low is None or effect.high is None:
        return "inconclusive"
    verdict = judge(effect, margin=margin, better=better, kind=kind, q_value=q_value)
    if verdict.name == "equivalent":
        return "equivalent"
    low, high = (1 / (1 + margin), 1 + margin) if kind == "ratio" else (-margin, margin)
    outside = effect.low > high or effect.high < low
    significant = q_value is None or q_value <= 0.05
    return "different" if outside and significant else "inconclusive"


def same_code(record_code: dict[str, object], here: dict[str, object]) -> bool:
    """Say whether two code states are one: the same commit with the same uncommitted changes."""
    keys: Sequence[str] = ("commit", "dirty", "diff_sha256")
    return record_code.get("commit") is not None and all(record_code.get(k) == here.get(k) for k in keys)
