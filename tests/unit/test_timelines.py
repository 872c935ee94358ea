"""Timelines of pipelines: gathered with the simulator's play beside them, and drawn to scale."""

from __future__ import annotations

import re
import threading
from itertools import pairwise
from typing import Any

import pytest
import torch
from paceline.baselines.training.one_f_one_b import OneFOneB

from paceline.families.training.model import Transformer
from paceline.families.training.pipeline.executor import Pass
from paceline.families.training.pipeline.schedule import Action
from paceline.families.training.pipeline.timeline import gather, passes_of
from paceline.families.training.replica import Replica, Task
from paceline.families.training.sizes import SIZES
from paceline.report.timelines import timeline_chart
from paceline.worker.comm import Comm
from paceline.worker.transport import ThreadHub, ThreadTransport

MS = 1_000_000


class Control:
    """The part of a session's control that a timeline needs; ranks' texts are given."""

    clock_offset_ns = 0

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def gather_text(self, text: str) -> list[str]:
        self.texts.append(text)
        return self.texts


class Session:
    """A session of one rank beside others that have spoken already."""

    def __init__(self, others: list[str]) -> None:
        self.control = Control(others)


def passes(*rows: tuple[str, int, int, int, int, int]) -> list[Pass]:
    return [(Action(k, s, m), b * MS, e * MS, c * MS) for k, s, m, b, e, c in rows]  # type: ignore[arg-type]  # kinds


def played(*ranks: list[Pass] | None) -> Any:
    texts: list[str] = []
    for rank in ranks[:-1]:
        gather(Session(texts), rank)  # type: ignore[arg-type]  # leaves its text behind
    return gather(Session(texts), ranks[-1])  # type: ignore[arg-type]  # what it needs of one


def test_processor_seconds_are_played_and_host_seconds_are_shown() -> None:
    """Rank 1 was kept from its core for 6 ms in its backward: that is no part of the schedule."""
    first = passes(("F", 0, 0, 100, 110, 10), ("B", 0, 0, 150, 170, 20))
    second = passes(("F", 1, 0, 112, 122, 10), ("B", 1, 0, 122, 148, 20))
    found = played(first, second)
    assert found.virtual_s == pytest.approx(0.060)
    assert found.virtual_idle_share == pytest.approx(1 - 60 / (2 * 60))
    simulated, measured = found.rows
    assert simulated["ranks"][0] == [["F", 0, 0, 0.0, 0.01], ["B", 0, 0, 0.04, 0.06]]
    assert measured["ranks"][0] == [["F", 0, 0, 0.0, 0.01], ["B", 0, 0, 0.05, 0.07]]
    assert measured["ranks"][1][1] == ["B", 1, 0, 0.022, 0.048]


def test_without_passes_on_some_rank_there_is_no_timeline() -> None:
    assert played(passes(("F", 0, 0, 0, 1, 1)), None) is None


def replica(kind: type[Replica], rank: int, hub: ThreadHub) -> Replica:
    model = Transformer(SIZES["deep"], vocabulary=64, context=7)
    model.initialise(1)
    task = Task(
        model=model,
        rank=rank,
        world_size=2,
        device=torch.device("cpu"),
        seed=1,
        steps=1,
        optimizer_name="sgd",
        peak_rate=0.1,
        warmup_steps=0,
        microbatches=2,
        tokens=28,
    )
    return kind(task, Comm(ThreadTransport(hub, rank)))


def test_passes_are_those_of_the_familys_executor_alone() -> None:
    class Liar(OneFOneB):
        def forward_backward(self, sequences_BS: torch.Tensor) -> torch.Tensor | None:
            return super().forward_backward(sequences_BS)

    hub, found = ThreadHub(2), {}

    def run(rank: int) -> None:
        own = replica(OneFOneB, rank, hub)
        own.forward_backward(torch.zeros(4, 8, dtype=torch.long))
        found[rank] = passes_of(own)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [str(p[0]) for p in found[0]] == [
        "F0 of stage 0",
        "F1 of stage 0",
        "B0 of stage 0",
        "B1 of stage 0",
    ]
    assert [str(p[0]) for p in found[1]] == [
        "F0 of stage 1",
        "B0 of stage 1",
        "F1 of stage 1",
        "B1 of stage 1",
    ]
    for rank in found.values():
        assert all(begin < end for _, begin, end, _ in rank)
        assert all(a[2] <= b[1] for a, b in pairwise(rank))
    assert passes_of(replica(Liar, 0, ThreadHub(2))) is None
    assert passes_of(replica(Replica, 0, ThreadHub(2))) is None


def test_a_chart_draws_every_pass_to_one_scale() -> None:
    rows = [
        {
            "title": "simulated",
            "ranks": [[["F", 0, 0, 0.0, 0.5], ["I", 2, 1, 0.5, 1.0]], [["W", 1, 0, 0.0, 1.0]]],
        },
        {
            "title": "measured",
            "ranks": [[["F", 0, 0, 0.0, 1.0], ["I", 2, 1, 1.0, 2.0]], [["W", 1, 0, 0.0, 2.0]]],
        },
    ]
    drawn = str(timeline_chart("a<b", rows))
    widths = [
        float(w)
        for w in re.findall(
            r'<rect class="part s\d(?: later)?" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', drawn
        )
    ]
    legend, bars = widths[:3], widths[3:]
    assert legend == [11.0] * 3
    assert bars[3:] == pytest.approx([2 * w for w in bars[:3]], abs=0.2)
    assert drawn.count(" later") == 2, "the second stage of rank 0, in both"
    assert "a&lt;b" in drawn and "a<b" not in drawn
    assert "backward to weights" in drawn and ">backward<" not in drawn
