"""The gate of continuous integration: did anything get worse than in the baseline run?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from paceline.analysis.claims.results import ClaimResult, evaluate
from paceline.analysis.claims.verdicts import REFUTED
from paceline.analysis.points import WRONG
from paceline.analysis.runs import RunComparison, compare_runs, incomparable
from paceline.base.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_INCORRECT,
    EXIT_OK,
    EXIT_REGRESSION,
    IncomparableError,
    UserError,
)
from paceline.records.store.folder import Loaded, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A known regression of one technique in a suite, accepted until a day; nothing waives a wrong result."""

    suite: str
    technique: str
    metric: str | None
    claim: str | None
    reason: str
    until: str
    """Last day, ISO 8601."""

    def covers(
        self, suite: str, technique: str, *, metric: str | None = None, claim: str | None = None
    ) -> bool:
        """Say whether it is about a series, a refuted claim, or (with neither named) a result that was lost."""
        if (suite, technique) != (self.suite, self.technique):
            return False
        if claim is not None:
            return self.claim == claim or (self.claim is None and self.metric is None)
        return self.claim is None and self.metric in (None, metric)


@dataclass(slots=True, kw_only=True)
class Decision:
    """What the gate found, sorted by verdict; improvements are counted beside regressions."""

    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """What the baseline run measured and this run could not: crashes, timeouts, memory."""
    worse: list[RunComparison] = field(default_factory=list)
    better: list[RunComparison] = field(default_factory=list)
    equivalent: list[RunComparison] = field(default_factory=list)
    inconclusive: list[RunComparison] = field(default_factory=list)
    refuted: list[ClaimResult] = field(default_factory=list)
    waived: list[str] = field(default_factory=list)
    """What would be a regression, was it not accepted, and why it is."""

    def exit_code(self, *, strict: bool) -> int:
        """Return the gate's exit code: wrong results first, then regressions, then doubt."""
        if self.wrong:
            return EXIT_INCORRECT
        if self.worse or self.lost or self.refuted:
            return EXIT_REGRESSION
        if strict and self.inconclusive:
            return EXIT_INCONCLUSIVE
        return EXIT_OK


def set_baseline(loaded: Loaded, record: RunRecord) -> RunRecord:
    """Return the run that was last made the baseline for this run's suites, runner and host class.

    Raises:
        UserError: None was set.
    """
    suites = {s["suite"] for s in record.run.suites}
    chosen: str | None = None
    for other in sorted(loaded.records, key=lambda r: r.run_id):
        for event in other.events:
            if event.kind != "baseline_set":
                continue
            same_place = event.data.get("host_class") == record.run.host_class and event.data.get(
                "runner"
            ) == record.run.runner.get("name")
            if same_place and suites & set(event.data.get("suites", ())) and "run_id" in event.data:
                chosen = str(event.data["run_id"])
    if chosen is None:
        raise UserError(
            f"no baseline run is set for {', '.join(sorted(suites))} on this host class and runner",
            fix="paceline store baseline RUN, or --against=RUN",
        )
    return loaded.find(chosen)


def waivers(loaded: Loaded, today: str) -> list[Waiver]:
    """Return the waivers of a store that still hold.

    Args:
        loaded: The store.
        today: The day, ISO 8601.
    """
    found = []
    for record in sorted(loaded.records, key=lambda r: r.run_id):
        for event in record.events:
            data = event.data
            if event.kind != "waiver" or str(data.get("until", "")) < today:
                continue
            named: dict[str, Any] = {f.name: data.get(f.name) for f in fields(Waiver)}
            if all(isinstance(named[k], str) for k in ("suite", "technique", "reason", "until")):
                found.append(Waiver(**named))
    return found


def judge_run(
    record: RunRecord, base: RunRecord, *, margin: float | None = None, waivers: Sequence[Waiver] = ()
) -> Decision:
    """Compare a run with its baseline.

    Raises:
        IncomparableError: Host or image class differ, or the runs share no series.
    """
    reason = incomparable(record.run, base.run)
    if reason is not None:
        raise IncomparableError(reason)
    decision = Decision()
    measured = {(m.suite, m.block, m.label) for m in base.measurements if m.status == "ok"}
    for m in record.measurements:
        text = f"{m.suite} {m.label} launch {m.launch}: {m.status}: {m.reason}"
        if m.status in WRONG:
            decision.wrong.append(text)
        elif m.status != "ok" and (m.suite, m.block, m.label) in measured:
            _lose(decision, m.suite, m.label, text, waivers)
    comparisons = compare_runs(record, base, margin=margin)
    if not comparisons and not decision.wrong and not decision.lost:
        raise IncomparableError(f"runs {record.run_id} and {base.run_id} share no series")
    tried = {(m.suite, m.block, m.label) for m in record.measurements}
    for suite, block, label in sorted(measured - tried):
        text = f"{suite} {label}: measured by the baseline run at {block}, not tried by this one"
        _lose(decision, suite, label, text, waivers)
    bins = {
        "slower": decision.worse,
        "faster": decision.better,
        "equivalent": decision.equivalent,
    }
    for c in comparisons:
        waiver = next((w for w in waivers if w.covers(c.suite, c.label, metric=c.metric)), None)
        if c.verdict.name == "slower" and waiver is not None:
            decision.waived.append(f"{c.suite} {c.label} {c.metric}: {_why(waiver)}")
        else:
            bins.get(c.verdict.name, decision.inconclusive).append(c)
    for found in evaluate([record], record.run.suites):
        if found.verdict not in REFUTED:
            continue
        waiver = next(
            (w for w in waivers if w.covers(found.suite, found.technique, claim=found.claim_id)), None
        )
        if waiver is None:
            decision.refuted.append(found)
        else:
            decision.waived.append(f"claim {found.suite} {found.claim_id}: {_why(waiver)}")
    return decision


def _lose(decision: Decision, suite: str, label: str, text: str, waivers: Sequence[Waiver]) -> None:
    waiver = next((w for w in waivers if w.covers(suite, label)), None)
    if waiver is None:
        decision.lost.append(text)
    else:
        decision.waived.append(f"{text}: {_why(waiver)}")


def _why(waiver: Waiver) -> str:
    return f"accepted until {waiver.until}: {waiver.reason}"
