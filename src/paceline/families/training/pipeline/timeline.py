"""What the passes of one step took: as measured, and as the simulator plays them with a core for every rank."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from paceline.families.training.pipeline.executor import Pass
from paceline.families.training.pipeline.schedule import Action
from paceline.families.training.pipeline.simulator import simulate
from paceline.worker.session import Session

NS = 1e-9
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

    def metrics(self) -> dict[str, Any]:
        """Return its figures as a result holds them."""
        return {
            "virtual_s": {"samples": [self.virtual_s]},
            "virtual_idle_share": {"samples": [self.virtual_idle_share]},
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
    played = simulate(table, spent.__getitem__, num_stages=1 + max(a.stage for a in spent))
    first = min(p[3] + rank["offset"] for rank in everyone for p in rank["passes"])
    measured = [
        [[*p[:3], *(_seconds(t + rank["offset"] - first) for t in p[3:5])] for p in rank["passes"]]
        for rank in everyone
    ]
    virtual = [
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
    rows = [{"title": "simulated", "ranks": virtual}, {"title": "measured", "ranks": measured}]
    return Timeline(rows=rows, virtual_s=played.makespan, virtual_idle_share=played.bubble)


def _seconds(ns: float) -> float:
    return round(ns * NS, DIGITS)
