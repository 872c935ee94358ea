"""Figures of an evaluation: accuracies with intervals, costs, paired differences, and the files and table of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.units import format_duration
from paceline.report.tables.results import Table
from paceline.report.words.estimates import ABSENT
from paceline.stats.estimates import wilson
from paceline.stats.paired import Paired, compare_paired, holm, mcnemar
from paceline.workflows.evaluation.answering import Row
from paceline.workflows.evaluation.evaluate import Outcome
from paceline.workflows.evaluation.pace import Prices

RESULTS, SAMPLES = "results.json", "samples.jsonl"
MAX_NAMED = 5
"""Failures whose reasons stand under the table; all are in the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One method's."""

    method: str
    answered: int
    failed: int
    left: int
    right: int
    accuracy: float | None
    low: float | None
    high: float | None
    """Wilson's 95 % interval."""
    unread: int
    """Answered questions whose answer could not be read; they count as wrong."""
    tokens: float | None
    """Completion tokens of a question, in the mean, probes included."""
    probe_tokens: float | None
    prompt_tokens: float | None
    requests: float | None
    critical_tokens: float | None
    critical_s: float | None
    cost: float | None
    """Money of a question, in the mean, for the method alone."""
    failed_probes: int
    """Probes without an answer, since their requests failed; their traces went on."""
    cut: int
    """Traces that ended at the most tokens."""
    against: Paired | None
    """On the questions that both answered; None of the first method."""
    p_value: float | None
    """McNemar's exact test against the first method, adjusted by Holm over all methods; None where none is of both."""


def figures_of(rows: Sequence[Row], prices: Prices | None) -> tuple[Figures, ...]:
    """Return each method's figures, in the methods' order."""
    methods = list(dict.fromkeys(row.method for row in rows))
    answered = {m: {r.place: r for r in rows if r.method == m and r.status == "answered"} for m in methods}
    pairs = {m: _paired(answered[m], answered[methods[0]]) for m in methods[1:]}
    tested = {m: one for m, one in pairs.items() if one.num_questions}
    adjusted = holm([mcnemar(one.won, one.lost) for one in tested.values()])
    p_values = dict(zip(tested, adjusted, strict=True))
    return tuple(
        _figures(
            m,
            [r for r in rows if r.method == m],
            prices,
            pairs.get(m),
            p_values.get(m),
        )
        for m in methods
    )


def _paired(rows: Mapping[int, Row], first: Mapping[int, Row]) -> Paired:
    common = sorted(set(rows) & set(first))
    return compare_paired([float(rows[p].right) for p in common], [float(first[p].right) for p in common])


def _figures(
    method: str, rows: Sequence[Row], prices: Prices | None, against: Paired | None, p_value: float | None
) -> Figures:
    done = [row for row in rows if row.status == "answered"]
    right = sum(row.right for row in done)
    low, high = wilson(right, len(done)) if done else (None, None)

    def mean(name: str) -> float | None:
        return sum(getattr(row, name) for row in done) / len(done) if done else None

    prompt, tokens = mean("prompt_tokens"), mean("tokens")
    return Figures(
        method=method,
        answered=len(done),
        failed=sum(row.status == "failed" for row in rows),
        left=sum(row.status == "left" for row in rows),
        right=right,
        accuracy=right / len(done) if done else None,
        low=low,
        high=high,
        unread=sum(row.answer is None for row in done),
        tokens=tokens,
        probe_tokens=mean("probe_tokens"),
        prompt_tokens=prompt,
        requests=mean("requests"),
        critical_tokens=mean("critical_tokens"),
        critical_s=mean("critical_s"),
        cost=None if prices is None or prompt is None or tokens is None else prices.cost(prompt, tokens),
        failed_probes=sum(row.failed_probes for row in done),
        cut=sum(row.cut for row in done),
        against=against,
        p_value=p_value,
    )


def result(outcome: Outcome, prices: Prices | None, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything as plain data."""
    paid = asdict(outcome.totals)
    if prices is not None:
        paid["money"] = _money(outcome, prices)
    return {
        "model": outcome.identity,
        "setting": dict(setting),
        "methods": [asdict(one) for one in figures_of(outcome.rows, prices)],
        "paid": paid,
        "paid_before_this_run": asdict(outcome.earlier),
        "wall_s": outcome.wall_s,
        "waited_s": outcome.waited_s,
        "failed": [row.plain() for row in outcome.rows if row.status == "failed"],
        **outcome.facts,
    }


def write(folder: Path, outcome: Outcome, prices: Prices | None, setting: Mapping[str, Any]) -> None:
    """Write the figures, and a line for each question and method."""
    text = json.dumps(result(outcome, prices, setting), indent=1, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    lines = (json.dumps(row.plain(), ensure_ascii=False) + "\n" for row in outcome.rows)
    (folder / SAMPLES).write_text("".join(lines), encoding="utf-8")


def _money(outcome: Outcome, prices: Prices) -> float:
    paid = outcome.totals
    return prices.cost(paid.prompt_tokens, paid.completion_tokens, paid.cached_tokens)


def table(outcome: Outcome, prices: Prices | None, problems: str) -> Table:
    """Return the table of an evaluation: a row for each method, what was paid and what failed below."""
    found = figures_of(outcome.rows, prices)
    first = found[0].method
    headers = ["method", "accuracy", "tokens", "prompt tokens", "critical path", "its time"]
    headers += ["cost"] if prices is not None else []
    headers += [f"against {first}", "p (Holm)"] if len(found) > 1 else []
    rows = []
    for one in found:
        row = [
            one.method,
            _share(one),
            _number(one.tokens),
            _number(one.prompt_tokens),
            _number(one.critical_tokens),
            ABSENT if one.critical_s is None else format_duration(one.critical_s),
        ]
        row += [ABSENT if one.cost is None else f"{one.cost:.3g}"] if prices is not None else []
        row += [_difference(one.against), _p(one.p_value)] if len(found) > 1 else []
        rows.append(tuple(row))
    count = len({row.place for row in outcome.rows})
    return Table(
        title=f"{outcome.identity} · {problems} · {number_of(count, 'question')}",
        headers=tuple(headers),
        rows=tuple(rows),
        notes=(*_notes(found), *_paid(outcome, prices)),
        failures=_failures(outcome.rows),
        leaving=("its time", "prompt tokens"),
    )


def _share(one: Figures) -> str:
    if one.accuracy is None or one.low is None or one.high is None:
        return ABSENT
    return f"{one.accuracy:.3f} [{one.low:.3f}, {one.high:.3f}]"


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def _difference(one: Paired | None) -> str:
    if one is None:
        return "baseline"
    if not one.num_questions:
        return ABSENT
    interval = "" if one.low is None or one.high is None else f" [{one.low:+.3f}, {one.high:+.3f}]"
    return f"{one.difference:+.3f}{interval}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _notes(found: Sequence[Figures]) -> list[str]:
    notes = ["tokens, prompts, cost and critical path: of a question, in the mean, for each method alone"]
    for one in found:
        parts = [
            number_of(count, single, several)
            for count, single, several in (
                (one.failed, "failed, which counts nowhere", "failed, which count nowhere"),
                (one.left, "left unanswered by the budget", "left unanswered by the budget"),
                (
                    one.unread,
                    "without a readable answer, which counts as wrong",
                    "without a readable answer, which count as wrong",
                ),
                (
                    one.failed_probes,
                    "probe failed, and its trace went on",
                    "probes failed, and their traces went on",
                ),
                (
                    one.cut,
                    "trace cut off at the most tokens (--max-tokens)",
                    "traces cut off at the most tokens (--max-tokens)",
                ),
            )
            if count
        ]
        if parts:
            notes.append(f"{one.method}: {'; '.join(parts)}")
        if one.against is not None and one.against.num_questions:
            found_by = (
                "all questions came out alike, so there is no interval"
                if one.against.least is None
                else f"a difference of {one.against.least:.3f} would be found in 80 % of such evaluations"
            )
            notes.append(f"{one.method}: {one.against.won} won, {one.against.lost} lost; {found_by}")
    return notes


def _paid(outcome: Outcome, prices: Prices | None) -> list[str]:
    paid, before = outcome.totals, outcome.earlier
    cached = "" if paid.cached_tokens is None else f" ({paid.cached_tokens:,} read from the server's cache)"
    money = "" if prices is None else f"; {_money(outcome, prices):.4g} in money"
    line = (
        f"paid in all: {number_of(paid.requests, 'request', form=',')}, {paid.prompt_tokens:,} prompt tokens{cached}, "
        f"{paid.completion_tokens:,} completion tokens{money}"
    )
    others = [
        f"{count} {what}"
        for count, what in (
            (paid.refused, "refused and sent again"),
            (paid.failed, "failed"),
            (paid.lacking, "told what the server lacks"),
            (paid.lost, f"never answered: the server may charge for {'it' if paid.lost == 1 else 'them'}"),
        )
        if count
    ]
    lines = [line + (f"; of the requests {', '.join(others)}" if others else "")]
    if before.requests:
        lines.append(
            f"of these in earlier runs: {number_of(before.requests, 'request', form=',')}, paid once"
        )
    waited = (
        f"; its requests waited {format_duration(outcome.waited_s)} together for limits and pauses"
        if outcome.waited_s
        else ""
    )
    lines.append(f"this run took {format_duration(outcome.wall_s)}{waited}")
    return lines


def _failures(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return what failed: once a question and reason, whichever methods it cost."""
    failed: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        if row.status == "failed":
            failed.setdefault((row.place, row.reason), []).append(row.method)
    shown = [
        f"question {place}, {', '.join(methods)}: {reason}"
        for (place, reason), methods in list(failed.items())[:MAX_NAMED]
    ]
    more = [f"{len(failed) - MAX_NAMED} more in {RESULTS}"] if len(failed) > MAX_NAMED else []
    return (*shown, *more)
