"""How the points of a run that was measured until decided have ended, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.records.store.folder import RunRecord

WORDS: Mapping[str, str] = {
    "decided": "decided",
    "nothing to decide": "nothing to decide",
    "launches": "undecided after the most launches",
    "budget": "ended by the time budget",
    "out of reach": "ended because no allowed number of launches would decide it",
    "machine busy": "ended because others took the machine in nearly all launches",
}
"""Why a point got no further launches → what is said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The end of one point."""

    suite: str
    block: str
    launches: int
    why: str


def stops_of(record: RunRecord) -> list[Stop]:
    """Return the ends of a run's points, in the order in which they came; none where launches were fixed."""
    suites = {m.block: m.suite for m in record.measurements}
    return [
        Stop(
            suite=suites[e.data["block"]],
            block=e.data["block"],
            launches=int(e.data["launches"]),
            why=str(e.data["why"]),
        )
        for e in record.events
        if e.kind == "block_stopped" and e.data.get("block") in suites
    ]


def stop_line(stops: Sequence[Stop]) -> str:
    """Say in one line how points have ended and after how many launches: ``1 point decided after 5 launches; …``."""
    by_reason: dict[str, list[int]] = defaultdict(list)
    for stop in stops:
        by_reason[stop.why].append(stop.launches)
    parts = []
    for why in sorted(by_reason, key=lambda w: list(WORDS).index(w) if w in WORDS else len(WORDS)):
        launches = by_reason[why]
        number = number_of(len(launches), "point")
        span = str(min(launches))
        if max(launches) != min(launches):
            span += f" to {max(launches)}"
        parts.append(f"{number} {WORDS.get(why, why)} ({span} launch{'es' if span != '1' else ''})")
    return "; ".join(parts)


def stop_lines(record: RunRecord, only: Collection[str] | None = None) -> list[str]:
    """Say it for each suite of a run that was measured until decided, by name where there are several.

    Args:
        record: Of the run.
        only: Names of suites; None: all.
    """
    stops = [s for s in stops_of(record) if only is None or s.suite in only]
    suites = list(dict.fromkeys(s.suite for s in stops))
    lines = []
    for suite in suites:
        line = stop_line([s for s in stops if s.suite == suite])
        lines.append(f"{suite}: {line}" if len(suites) > 1 else line)
    return lines
