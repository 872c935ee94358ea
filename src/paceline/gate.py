"""The gate of continuous integration: did anything get worse than in the baseline run?"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.claims import ClaimResult, evaluate
from paceline.compare import WRONG
from paceline.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_INCORRECT,
    EXIT_OK,
    EXIT_REGRESSION,
    IncomparableError,
    UserError,
)
from paceline.runcompare import RunComparison, compare_runs, incomparable
from paceline.store import Loaded, RunRecord


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
            fix="paceline store baseline RUN, or --against RUN",
        )
    return loaded.find(chosen)


def judge_run(record: RunRecord, base: RunRecord, *, margin: float | None = None) -> Decision:
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
            decision.lost.append(text)
    comparisons = compare_runs(record, base, margin=margin)
    if not comparisons and not decision.wrong and not decision.lost:
        raise IncomparableError(f"runs {record.run_id} and {base.run_id} share no series")
    tried = {(m.suite, m.block, m.label) for m in record.measurements}
    for suite, block, label in sorted(measured - tried):
        decision.lost.append(
            f"{suite} {label}: measured by the baseline run at {block}, not tried by this one"
        )
    bins = {
        "slower": decision.worse,
        "faster": decision.better,
        "equivalent": decision.equivalent,
    }
    for comparison in comparisons:
        bins.get(comparison.verdict.name, decision.inconclusive).append(comparison)
    decision.refuted = [c for c in evaluate([record], record.run.suites) if c.verdict == "not reproduced"]
    return decision
