"""What the passes of some steps took: as measured, as the simulator plays them, and as it foretells them.

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

from paceline.families.training.api.pipeline.executor import Pass
from paceline.families.training.api.pipeline.schedule import Action, Kind, Table, needs
from paceline.families.training.ops.pipeline_parallel.simulator import Simulated, simulate
from paceline.worker.ranks.session import Session

NS = 1e-9
Bar = Sequence[Any]
"""Kind, stage, microbatch, begin and end in seconds."""
DIGITS = 7
"""Decimals of a second that a timeline keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a pipeline on all ranks."""

    rows: list[dict[str, Any]]
    """As a page draws it: titles, and for each rank (kind, stage, microbatch, begin, end), seconds from the first."""
    virtual_s: float
    """The simulator's makespan, from the processor seconds of each pass, with messages that take no time."""
    virtual_bubble_fraction: float
    measured_s: float
    """From the first pass's begin to the last one's end, over ranks, host clock."""
    predicted_s: float
    """The simulator's makespan, from the mean processor seconds of each kind of pass in each stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Some steps, the first of which is drawn."""

    steps: list[Step]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Those of the first step."""
        return self.steps[0].rows

    def metrics(self) -> dict[str, Any]:
        """Return its figures as a result holds them: times of the first step, ratios of all."""
        return {
            "virtual_s": {"samples": [self.steps[0].virtual_s]},
            "virtual_bubble_fraction": {"samples": [self.steps[0].virtual_bubble_fraction]},
            "makespan_ratio": {"samples": [s.measured_s / s.predicted_s for s in self.steps]},
            "virtual_makespan_ratio": {"samples": [s.virtual_s / s.predicted_s for s in self.steps]},
        }


def gather(session: Session, steps: Sequence[Sequence[Pass]]) -> Timeline | None:
    """Bring the passes of all ranks together, of the same steps on each; None when some rank has none."""
    offset = session.control.clock_offset_ns
    own = [
        [
            (a.kind, a.stage, a.microbatch, begin + offset, end + offset, spent)
            for a, begin, end, spent in passes
        ]
        for passes in steps
    ]
    everyone = [json.loads(text) for text in session.control.gather_text(json.dumps(own))]
    if not all(everyone):
        return None
    return Timeline(steps=[_step(ranks) for ranks in zip(*everyone, strict=True)])


def _step(ranks: Sequence[Sequence[Sequence[Any]]]) -> Step:
    """Play a step; for each rank (kind, stage, microbatch, begin, end, processor's time), in ns on the common clock."""
    table = [[Action(*p[:3]) for p in passes] for passes in ranks]
    spent = {Action(*p[:3]): p[5] * NS for passes in ranks for p in passes}
    stages = 1 + max(a.stage for a in spent)
    played = simulate(table, spent.__getitem__, num_stages=stages)
    first = min(p[3] for passes in ranks for p in passes)
    measured = [[[*p[:3], *(_seconds(t - first) for t in p[3:5])] for p in passes] for passes in ranks]
    return Step(
        rows=[
            {"title": "simulated", "ranks": _bars(table, spent, played)},
            {"title": "measured", "ranks": with_messages(measured, stages)},
        ],
        virtual_s=played.makespan,
        virtual_bubble_fraction=played.bubble,
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
