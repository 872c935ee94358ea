"""The loop and the bare script take turns on real ranks, and each window has the times of both."""

from __future__ import annotations

import pytest
from figures import Figures
from measured import record_of_text

from paceline.records.store.folder import RunRecord

TECHNIQUES = ("ddp", "fsdp")
SUITE = """
suite: training/beside
version: 1
family: training
description: The loop and a script take turns.
workload: {op: data_parallel, size: nano, batch: 12, context: 16, learning_rate: 0.01, reference_timer: bare-script}
baseline: ddp
techniques: [ddp, fsdp]
matrix: {ranks: [2], steps: [80], warmup_steps: [4], window: [10], evaluations: [2], eval_batch: [64]}
protocol: {launches: 1}
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return record_of_text(SUITE, tmp_path_factory.mktemp("beside"))


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_both_have_a_time_of_every_window(technique: str, record: RunRecord) -> None:
    found = {m.metric.name: m.samples for m in record.measurements if m.technique == technique}
    assert len(found["bare_time_per_token"]) == len(found["time_per_token"]) == 8
    assert min(*found["bare_time_per_token"], *found["time_per_token"]) > 0


@pytest.mark.measured
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_the_times_of_a_window_are_alike(technique: str, record: RunRecord, figure: Figures) -> None:
    found = {m.metric.name: m.samples for m in record.measurements if m.technique == technique}
    ratios = [a / b for a, b in zip(found["time_per_token"], found["bare_time_per_token"], strict=True)]
    figure("time of a window over the script's, least", min(ratios), unit="ratio", least=0.1)
    figure("time of a window over the script's, most", max(ratios), unit="ratio", most=10)
