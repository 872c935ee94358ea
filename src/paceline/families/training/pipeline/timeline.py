"""What the passes of one step took: as measured, as the simulator plays them, and as it foretells them.

Three makespans of one table. Measured: on the host's clock, over all ranks. Played: every pass takes its own processor
seconds, a core for every rank. Predicted: every pass takes the mean of its kind in its stage, which is all that anybody
who plans a pipeline knows. The simulator is checked by what the first two are of the third.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from paceline.families.training.pipeline.executor import Pass
from paceline.families.training.pipeline.schedule import Action, Kind, Table, needs
from paceline.families.training.pipeline.simulator import Simulated, simulate
from paceline.worker.session import Session

NS = 1e-9
Bar = Sequence[Any]
"""Kind, stage, microbatch, begin and end in seconds."""
DIGITS = 7
"""Decimals of a second that a timeline keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step of a pipeline on all ranks."""

    rows: list[dict[str, Any]]
    """As a page draws it: titles, and for each rank (kind, stage, microbatch, begin, end), seconds from the first."""
    virtual_s: float
    """The simulator's makespan, from the processor seconds of each pass, with messages that take no time."""
    virtual_idle_share: float
    measured_s: float
    """From the first pass's begin to the last one's end, over ranks, host clock."""
    predicted_s: float
    """The simulator's makespan, from the mean processor seconds of each kind of pass in each stage."""

    def metrics(self) -> dict[str, Any]:
        """Return its figures as a result holds them."""
        return {
            "virtual_s": {"samples": [self.virtual_s]},
            "virtual_idle_share": {"samples": [self.virtual_idle_share]},
            "makespan_ratio": {"samples": [self.measured_s / self.predicted_s]},
            "virtual_makespan_ratio": {"samples": [self.virtual_s / self.predicted_s]},
        }


def gather(session: Session, passes: list[Pass] | None) -> Timeline | None:
    """Bring the passes of all ranks together; None when some rank has none."""
    own = [(a.kind, a.stage, a.microbatch, begin, end, spent) for a, begin, end, spent in passes or ()]
    offset = session.control.clock_offset_ns
    texts = session.control.gather_text(json.dumps({"offset": offset, "passes": own}))
    everyone = [json.loads(text) for text in texts]
    if not all(rank["passes"] for rank in everyone):
        return None
    table = [[Action(*p[:3]) for p in rank["passes"]] for rank in everyone]
    spent = {Action(*p[:3]): p[5] * NS for rank in everyone for p in rank["passes"]}
    stages = 1 + max(a.stage for a in spent)
    played = simulate(table, spent.__getitem__, num_stages=stages)
    first = min(p[3] + rank["offset"] for rank in everyone for p in rank["passes"])
    measured = [
        [[*p[:3], *(_seconds(t + rank["offset"] - first) for t in p[3:5])] for p in rank["passes"]]
        for rank in everyone
    ]
    return Timeline(
        rows=[
            {"title": "simulated", "ranks": _bars(table, spent, played)},
            {"title": "measured", "ranks": with_messages(measured, stages)},
        ],
        virtual_s=played.makespan,
        virtual_idle_share=played.bubble,
        measured_s=max(bar[4] for bars in measured for bar in bars),
        predicted_s=simulate(table, means(spent), num_stages=stages).makespan,
    )


def means(spent: Mapping[Action, float]) -> Callable[[Action], float]:
    """Return what an action takes by the mean of its kind in its stage."""
    alike: dict[tuple[Kind, int], list[float]] = defaultdict(list)
    for action, seconds in spent.items():
        alike[action.kind, action.stage].append(seconds)
    mean = {key: fmean(found) for key, found in alike.items()}
    return lambda action: mean[action.kind, action.stage]


def with_messages(ranks: Sequence[Sequence[Bar]], num_stages: int) -> list[list[Bar]]:
    """Return the bars of all ranks with one of kind C before each that had to wait for a message under way.

    It begins when the pass that made the message has ended or this rank has nothing else to do, whichever is later, and
    ends as the pass begins that needs it. What a rank waits before that, it waits for another rank's work. With fewer
    cores than ranks, a rank that has its message may wait for a core, too.
    """
    ends = {Action(*bar[:3]): bar[4] for bars in ranks for bar in bars}
    found = []
    for rank, bars in enumerate(ranks):
        row: list[Bar] = []
        free = 0.0
        for bar in bars:
            choices = needs(Action(*bar[:3]), num_stages)
            needed = [next(a for a in choice if a in ends) for choice in choices]
            sent = [ends[a] for a in needed if a.stage % len(ranks) != rank]
            if sent and (start := max(free, *sent)) < bar[3]:
                row.append(["C", bar[1], bar[2], start, bar[3]])
            row.append(bar)
            free = bar[4]
        found.append(row)
    return found


def _bars(table: Table, spent: Mapping[Action, float], played: Simulated) -> list[list[Bar]]:
    return [
        [
            [
                a.kind,
                a.stage,
                a.microbatch,
                round(played.ends[a] - spent[a], DIGITS),
                round(played.ends[a], DIGITS),
            ]
            for a in row
        ]
        for row in table
    ]


def _seconds(ns: float) -> float:
    return round(ns * NS, DIGITS)
