"""Two jobs with one seed give the same curves, bit for bit: a run does not hang on the processes in which it ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.drivers.measure import measure
from paceline.records.store.folder import read_record
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

pytestmark = pytest.mark.timeout(180)

SUITE = """
suite: training/repeated
version: 1
family: training
description: A seed stands for a run.
workload: {op: data_parallel, size: nano, batch: 8, context: 16, learning_rate: 0.01}
baseline: ddp-ring
techniques: [ddp-ring, ddp, diloco, terngrad]
matrix: {ranks: [2], steps: [40], warmup_steps: [4], window: [10], evaluations: [4], eval_batch: [64]}
protocol: {launches: 1}
"""
TECHNIQUES = ("ddp-ring", "ddp", "diloco", "terngrad")
CLOSE = 1e-4
"""Of a loss: the library lays out its buckets as it likes, and adds in another order then."""

Curves = dict[tuple[str, str], list[float]]


def curves(folder: Path, seed: int) -> Curves:
    """Return what a job recorded that has nothing to do with time, by technique and name."""
    folder.mkdir()
    path = folder / "suite.yaml"
    path.write_text(SUITE.lstrip())
    suites = [load_suite(path)]
    plan = make_plan(suites, load_runner(content.find_runner("local-cpu")), Selection(seed=seed))
    outcome = measure(plan, suites, folder / "results", on_event=lambda event: None)
    assert outcome.path is not None
    found: Curves = {}
    for m in read_record(outcome.path).measurements:
        if m.metric.name in ("eval_loss", "train_loss", "wire_bytes", "divergence"):
            found[m.label, m.metric.name] = list(m.samples)
        if m.accounting is not None:
            found[m.label, "excess loss at evaluations"] = list(m.accounting["curve"]["excess_loss"])
    return found


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> list[Curves]:
    folder = tmp_path_factory.mktemp("repeated")
    return [curves(folder / name, seed=11) for name in ("first", "again")]


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_job_with_the_same_seed_gives_the_same_curves(technique: str, jobs: list[Curves]) -> None:
    first, again = ({k: v for k, v in job.items() if k[0] == technique} for job in jobs)
    assert len(first[technique, "excess loss at evaluations"]) == 5
    assert len(first[technique, "train_loss"]) == 4
    if technique == "ddp":
        assert first.keys() == again.keys()
        for key, values in first.items():
            assert again[key] == pytest.approx(values, rel=CLOSE, abs=CLOSE)
    else:
        assert first == again


def test_what_is_compared_tells_techniques_apart(jobs: list[Curves]) -> None:
    losses = [jobs[0][technique, "train_loss"] for technique in TECHNIQUES if technique != "ddp"]
    assert len({tuple(curve) for curve in losses}) == len(losses)
    assert all(len(set(curve)) == len(curve) for curve in losses)
