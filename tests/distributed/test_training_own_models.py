"""A user's own network and data are trained by techniques of data parallelism, and held to what one process does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from measured import record_of_text

from paceline.records.store.folder import RunRecord

MUTANTS = Path(__file__).parents[1] / "mutants" / "training"
TECHNIQUES = ("ddp", "ddp-ring", "diloco", "fsdp")
NET = '''
import torch
from torch import nn
from parts import Block


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.Sequential(Block(4), nn.BatchNorm2d(4), Block(4))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.head(self.drop(self.blocks(self.stem(x)).flatten(1)))


def make_model():
    return Net()


def make_data(rank, world_size, batch_size, split):
    """Draw from the process's generator: the harness gives each rank numbers of its own."""
    patterns = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    while True:
        labels = torch.randint(5, (batch_size,))
        yield patterns[labels] + 0.5 * torch.randn(batch_size, 1, 6, 6), labels


def wrong(rank):
    return nn.Linear(1, 1 + rank)


def endless(batch_size, split):
    for _ in range(9):
        yield torch.zeros(batch_size, 1, 6, 6), torch.zeros(batch_size, dtype=torch.int64)
'''
PARTS = """
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()
"""
SUITE = """
suite: training/mine
version: 1
family: training
description: A network of mine.
workload:
  op: data_parallel
  model: net.py:make_model
  data: net.py:make_data
  loss: torch.nn.functional:cross_entropy
  batch: 16
  steps: 24
  window: 6
  warmup_steps: 4
  evaluations: 2
  eval_batch: 64
baseline: ddp
techniques: [ddp, ddp-ring, {technique: diloco, options: {sync_every: 6}}, fsdp]
matrix: {ranks: [2]}
protocol: {launches: 1}
"""


def measured(folder: Path, text: str = SUITE, extra: Sequence[Path] = ()) -> RunRecord:
    (folder / "net.py").write_text(NET)
    (folder / "parts.py").write_text(PARTS)
    return record_of_text(text, folder, extra=extra)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return measured(tmp_path_factory.mktemp("own"))


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_every_technique_trains_it(technique: str, record: RunRecord) -> None:
    found = {m.metric.name: m for m in record.measurements if m.technique == technique}
    assert {m.status for m in found.values()} == {"ok"}, [m.reason for m in found.values()]
    assert len(found["time_per_token"].samples) == 4
    losses = found["eval_loss"].samples
    assert losses[-1] < losses[0] - 0.1


def test_exact_techniques_end_where_one_another_do(record: RunRecord) -> None:
    last = {m.technique: m.samples[-1] for m in record.measurements if m.metric.name == "eval_loss"}
    assert last["ddp"] == pytest.approx(last["ddp-ring"], rel=1e-3)
    assert last["ddp"] == pytest.approx(last["fsdp"], rel=1e-3)
    assert last["diloco"] != last["ddp"]


def test_exact_steps_were_held_against_one_process(record: RunRecord) -> None:
    checks = {
        m.technique: m.correctness["gate_checks"]
        for m in record.measurements
        if "gate_checks" in (m.correctness or {})
    }
    assert checks == {"ddp": 6, "ddp-ring": 6, "diloco": 0, "fsdp": 6}


def test_the_record_holds_the_files(record: RunRecord) -> None:
    (code,) = record.run.suites[0]["own_code"].values()
    assert code["files"]["0/net.py"]["text"] == NET
    assert code["files"]["0/parts.py"]["text"] == PARTS
    assert "installed/torch.nn.functional" in code["files"]


@pytest.mark.parametrize("technique", ["sums-gradients", "skips-the-tail", "rounds-gradients"])
def test_wrong_techniques_are_found_wrong_on_it(technique: str, tmp_path: Path) -> None:
    techniques = SUITE[SUITE.index("techniques:") : SUITE.index("matrix:")]
    text = SUITE.replace(techniques, f"techniques: [ddp, {technique}]\n")
    found = measured(tmp_path, text, extra=[MUTANTS / f"{technique.replace('-', '_')}.py"])
    (wrong,) = {(m.status, m.reason) for m in found.measurements if m.technique == technique}
    assert wrong[0] == "incorrect"
    assert "beside one process on the whole batch" in str(wrong[1])


def test_what_can_be_trained_is_measured_beside_what_cannot(tmp_path: Path) -> None:
    text = SUITE.replace("  model: net.py:make_model\n", "").replace(", fsdp]", "]")
    found = measured(
        tmp_path, text.replace("ranks: [2]", "ranks: [2], model: [net.py:make_model, net.py:wrong]")
    )
    statuses = {(m.params["model"], m.status) for m in found.measurements}
    assert statuses == {("net.py:make_model", "ok"), ("net.py:wrong", "invalid")}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("make_model", "wrong", "model: net.py:wrong wants the argument 'rank'"),
        ("make_data", "endless", "data: net.py:endless ended before batch 10 of rank 0"),
        ("  loss: torch.nn.functional:cross_entropy\n", "", "was given its first batch and raised TypeError"),
    ],
)
def test_what_cannot_be_trained_is_told_of_all_techniques(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    found = measured(tmp_path, SUITE.replace(old, new))
    assert {m.status for m in found.measurements} == {"invalid"}
    assert all(said in str(m.reason) for m in found.measurements)
