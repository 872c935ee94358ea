"""Timelines of pipelines: gathered with the simulator's play beside them, and drawn to scale."""

from __future__ import annotations

import json
import re
from dataclasses import astuple
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paceline.baselines.training.gpipe import GPipe
from paceline.baselines.training.one_f_one_b import OneFOneB
from paceline.baselines.training.ring_attention import RingAttention
from paceline.baselines.training.zb_h1 import ZbH1
from paceline.baselines.training.zb_h2 import ZbH2
from training_task import make_comm, make_task, on_ranks

from paceline.families.training.api.pipeline.executor import Pass, PipelineReplica
from paceline.families.training.api.pipeline.schedule import Action, most_live
from paceline.families.training.api.replica import Replica
from paceline.families.training.api.sequence.replica import SequenceReplica
from paceline.families.training.core.loop.unchanged import passes_are_the_familys
from paceline.families.training.ops.pipeline_parallel.passes import passes_of
from paceline.families.training.ops.pipeline_parallel.timeline import gather
from paceline.report.charts.svg import WIDTH
from paceline.report.points.timelines import LEFT, timeline_chart, timeline_grid
from paceline.worker.communication.transport import ThreadHub

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


def gathered(*ranks: list[list[Pass]]) -> Any:
    """Return what the last rank is told of the steps of all."""
    texts: list[str] = []
    for rank in ranks[:-1]:
        Session(texts).control.gather_text(
            json.dumps([[(*astuple(a), *times) for a, *times in p] for p in rank])
        )
    return gather(Session(texts), ranks[-1])  # type: ignore[arg-type]  # what it needs of one


def played(*ranks: list[Pass]) -> Any:
    """Return the one step."""
    (step,) = gathered(*([rank] for rank in ranks)).steps
    return step


def test_processor_seconds_are_played_and_host_seconds_are_shown() -> None:
    """Rank 1 was kept from its core for 6 ms in its backward: that is no part of the schedule."""
    first = passes(("F", 0, 0, 100, 110, 10), ("B", 0, 0, 150, 170, 20))
    second = passes(("F", 1, 0, 112, 122, 10), ("B", 1, 0, 122, 148, 20))
    found = played(first, second)
    assert found.virtual_s == pytest.approx(0.060)
    assert found.virtual_bubble_fraction == pytest.approx(1 - 60 / (2 * 60))
    simulated, measured = found.rows
    assert simulated["ranks"][0] == [["F", 0, 0, 0.0, 0.01], ["B", 0, 0, 0.04, 0.06]]
    assert passes_alone(measured)[0] == [["F", 0, 0, 0.0, 0.01], ["B", 0, 0, 0.05, 0.07]]
    assert passes_alone(measured)[1][1] == ["B", 1, 0, 0.022, 0.048]


def passes_alone(row: Any) -> list[Any]:
    return [[bar for bar in bars if bar[0] != "C"] for bars in row["ranks"]]


def test_a_makespan_is_foretold_from_the_mean_of_each_kind_of_pass() -> None:
    """Of stage 1's two backwards the first takes three times as long as the second, and stage 0 waits for both."""
    first = passes(
        ("F", 0, 0, 0, 20, 20), ("F", 0, 1, 20, 40, 20), ("B", 0, 1, 90, 110, 20), ("B", 0, 0, 115, 135, 20)
    )
    second = passes(
        ("F", 1, 0, 21, 31, 10), ("F", 1, 1, 42, 52, 10), ("B", 1, 1, 52, 82, 30), ("B", 1, 0, 82, 92, 10)
    )
    found = played(first, second)
    assert found.predicted_s == pytest.approx(0.040 + 0.010 + 3 * 0.020)
    assert found.virtual_s == pytest.approx(0.040 + 0.010 + 0.030 + 2 * 0.020)
    assert found.measured_s == pytest.approx(0.135)


def test_times_are_those_of_the_first_step_and_ratios_those_of_all() -> None:
    quick = passes(
        ("F", 0, 0, 0, 10, 10), ("F", 0, 1, 10, 20, 10), ("B", 0, 0, 20, 40, 20), ("B", 0, 1, 40, 60, 20)
    )
    slow = passes(
        ("F", 0, 0, 0, 20, 10), ("F", 0, 1, 20, 40, 10), ("B", 0, 0, 40, 70, 20), ("B", 0, 1, 70, 90, 20)
    )
    found = gathered([quick, slow])
    samples = {name: metric["samples"] for name, metric in found.metrics().items()}
    assert samples["makespan_ratio"] == pytest.approx([1, 1.5])
    assert samples["virtual_makespan_ratio"] == pytest.approx([1, 1])
    assert samples["virtual_s"] == pytest.approx([0.06])
    assert found.rows[1]["ranks"] == found.steps[0].rows[1]["ranks"]


def test_a_message_is_under_way_from_when_it_was_made_or_its_reader_was_free() -> None:
    """Rank 0 waits 28 ms for rank 1, then 2 ms for the message; rank 1 works when its second message is made."""
    first = passes(("F", 0, 0, 100, 110, 10), ("F", 0, 1, 110, 120, 10), ("B", 0, 0, 150, 170, 20))
    second = passes(("F", 1, 0, 112, 122, 10), ("B", 1, 0, 122, 148, 20), ("F", 1, 1, 149, 159, 10))
    ranks = played(first, second).rows[1]["ranks"]
    assert [bar for bar in ranks[0] if bar[0] == "C"] == [["C", 0, 0, 0.048, 0.05]]
    assert [bar for bar in ranks[1] if bar[0] == "C"] == [["C", 1, 0, 0.01, 0.012], ["C", 1, 1, 0.048, 0.049]]
    assert [bar[0] for bar in ranks[1]] == ["C", "F", "B", "C", "F"], "before the pass that needs it"


def test_what_stays_on_a_rank_is_no_message() -> None:
    alone = passes(
        ("F", 0, 0, 0, 10, 10), ("F", 1, 0, 15, 25, 10), ("B", 1, 0, 25, 45, 20), ("B", 0, 0, 50, 70, 20)
    )
    assert {bar[0] for bar in played(alone).rows[1]["ranks"][0]} == {"F", "B"}


def test_without_passes_on_some_rank_there_is_no_timeline() -> None:
    assert gathered([passes(("F", 0, 0, 0, 1, 1))], []) is None
    assert gathered([], [passes(("F", 0, 0, 0, 1, 1))]) is None


def on_two_ranks(kind: type[Replica], microbatches: int = 2) -> list[Any]:
    """Run forward and backward of one step on two ranks; return the replicas."""
    symbols = torch.zeros(2 * microbatches, 8, dtype=torch.long)
    done = on_ranks(
        kind, 2, lambda r: r.forward_backward(symbols), size="deep", context=7, microbatches=microbatches
    )
    return [replica for replica, _ in done]


def replica(kind: type[Replica]) -> Replica:
    hub = ThreadHub(2)
    return kind(make_task(size="deep", context=7, microbatches=2, world_size=2), make_comm(0, hub))


def test_passes_are_what_a_rank_did() -> None:
    first, second = (passes_of(r) for r in on_two_ranks(OneFOneB))
    assert first is not None and second is not None
    assert [str(p[0]) for p in first] == ["F0 of stage 0", "F1 of stage 0", "B0 of stage 0", "B1 of stage 0"]
    assert [str(p[0]) for p in second] == ["F0 of stage 1", "B0 of stage 1", "F1 of stage 1", "B1 of stage 1"]
    for rank in (first, second):
        assert all(begin < end for _, begin, end, _ in rank)
        assert all(a[2] <= b[1] for a, b in pairwise(rank))


@pytest.mark.parametrize("kind", [GPipe, OneFOneB, ZbH1, ZbH2])
def test_a_rank_keeps_the_activations_that_its_table_says(kind: type[Replica]) -> None:
    for own in on_two_ranks(kind, microbatches=6):
        assert own.alive == most_live(own.row)


class Ahead(OneFOneB):
    """Computes before the clock of a pass runs."""

    def _await(self, action: Action) -> torch.Tensor | None:
        return super()._await(action)


class Later(OneFOneB):
    """Could do a part of backward after it."""

    def exchange_gradients(self, step: int) -> None:
        super().exchange_gradients(step)


class Backwards(RingAttention):
    """Could send after forward and backward what belongs into them."""

    def exchange_gradients(self, step: int) -> None:
        super().exchange_gradients(step)


def test_passes_of_techniques_that_do_more_than_give_a_table_are_not_taken() -> None:
    assert passes_of(replica(Ahead)) is None
    assert passes_of(replica(Replica)) is None
    later = replica(Later)
    assert passes_of(later) is None
    honest = replica(OneFOneB)
    assert passes_of(honest) == []
    kinds = (PipelineReplica, SequenceReplica)
    assert passes_are_the_familys(honest, kinds) and passes_are_the_familys(replica(RingAttention), kinds)
    assert not passes_are_the_familys(honest, kinds[1:])
    for changed in (later, replica(Backwards), replica(Replica)):
        assert not passes_are_the_familys(changed, kinds)
    honest._send = lambda message, tensor: None  # type: ignore[attr-defined]  # the executor has it
    assert passes_of(honest) is None


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
    assert ">communication<" not in drawn and ">idle<" in drawn, "as records had it before"


def test_messages_have_a_colour_and_a_place_in_the_legend() -> None:
    rows = [
        {
            "title": "measured",
            "ranks": [[["F", 0, 0, 0.0, 1.0]], [["C", 1, 0, 1.0, 2.0], ["F", 1, 0, 2.0, 4.0]]],
        }
    ]
    drawn = str(timeline_chart("a", rows))
    widths = [float(w) for w in re.findall(r'class="part s3" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', drawn)]
    whole = (WIDTH - 16 - LEFT) / 4
    assert widths == pytest.approx([11.0, whole], abs=0.1)
    assert re.findall(r'class="tick"[^>]*>([a-z]+)<', drawn) == ["forward", "communication", "idle"]
    assert drawn.count('class="bar-text"') == 2, "microbatches are numbered, and not messages"


def test_the_table_tells_messages_and_idleness_apart() -> None:
    rows = [
        {
            "title": "measured",
            "ranks": [[["F", 0, 0, 0.0, 1.0]], [["C", 1, 0, 1.0, 2.0], ["F", 1, 0, 2.0, 4.0]]],
        }
    ]
    measurement = SimpleNamespace(launch=0, accounting={"timeline": rows})
    cells = {("a", "time_per_token"): SimpleNamespace(measurements=[measurement])}
    grid = timeline_grid(SimpleNamespace(labels=["a"], cells=cells))  # type: ignore[arg-type]  # what it needs of one
    headers = [cell.text for cell in grid.headers]
    first, second = (dict(zip(headers, [cell.text for cell in row], strict=True)) for row in grid.groups[0])
    assert (first["communication"], first["idle"]) == ("–", "3 s")
    assert (second["communication"], second["idle"]) == ("1 s", "1 s")
