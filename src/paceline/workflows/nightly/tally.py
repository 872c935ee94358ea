"""How much of a unit was decided: a night without an alarm says little where most comparisons are open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from paceline.analysis.gate import Decision
from paceline.analysis.points import WRONG, compared, points_of
from paceline.records.store.folder import RunRecord
from paceline.spec.plans.plan import Plan

Series = tuple[str, str, str, str]
LEFT_OUT = ("skipped", "unsupported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Comparisons of a night with its reference, one a series, and cases that have no number to compare."""

    faster: int = 0
    slower: int = 0
    equivalent: int = 0
    inconclusive: int = 0
    incomparable: int = 0
    """Series that the reference does not have, or has under another definition; all of them without a reference."""
    invalid: int = 0
    """Cases with a wrong or impossible result."""
    failed: int = 0
    """Cases without any: crashed, timed out, out of memory, or the machine failed."""
    skipped: int = 0
    """Cases that the runner cannot run or the suite leaves out."""

    @property
    def decided(self) -> int:
        """Comparisons with a verdict."""
        return self.faster + self.slower + self.equivalent

    def text(self) -> str:
        """Say it in one line; what nobody could decide stands beside what was."""
        decided = f"{self.decided} decided ({self.faster} faster, {self.slower} slower, {self.equivalent} equivalent)"
        rest = ("inconclusive", "incomparable", "invalid", "failed", "skipped")
        return ", ".join([decided, *(f"{getattr(self, name)} {name}" for name in rest)])

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Tally)})


Pair = tuple[RunRecord, RunRecord, Decision]
"""Some blocks of a night, the run with which they are compared, and what the gate says of them."""


def tally(record: RunRecord, plan: Plan, pairs: Sequence[Pair] = ()) -> Tally:
    """Count what became of a unit's comparisons.

    Args:
        record: The night's run.
        plan: What was to run.
        pairs: What was compared; none where there is no reference, or where the two could not be compared.
    """
    faster = slower = equivalent = open_ = 0
    for part, reference, told in pairs:
        there = _series(reference)
        num_compared = sum(there.get(series) == contract for series, contract in _compared(part).items())
        decided = len(told.better) + len(told.equivalent) + len(told.inconclusive)
        faster += len(told.better)
        slower += num_compared - decided
        equivalent += len(told.equivalent)
        open_ += len(told.inconclusive)
    endings = {(m.suite, m.block, m.label): m.status for m in record.measurements if m.status != "ok"}
    invalid = sum(status in WRONG for status in endings.values())
    left_out = sum(status in LEFT_OUT for status in endings.values())
    return Tally(
        faster=faster,
        slower=slower,
        equivalent=equivalent,
        inconclusive=open_,
        incomparable=len(_compared(record)) - faster - slower - equivalent - open_,
        invalid=invalid,
        failed=len(endings) - invalid - left_out,
        skipped=left_out + len(plan.data["skipped"]),
    )


def _compared(record: RunRecord) -> dict[Series, str]:
    """Return the contracts of those series that their suites compare."""
    return {
        series: contract
        for series, contract in _series(record).items()
        if series[3] in compared(record.run, series[0])
    }


def _series(record: RunRecord) -> dict[Series, str]:
    """Return the contract of every series of a run."""
    return {
        (point.suite, json.dumps(dict(point.params), sort_keys=True), label, metric): cell.contract_id
        for point in points_of(record)
        for (label, metric), cell in point.cells.items()
    }
