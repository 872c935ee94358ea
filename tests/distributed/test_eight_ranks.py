"""Layouts of eight ranks on two cores: slow, and as right as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import seeds
import yaml

from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, results_of, run_suites

RANKS = 8
SHORT: dict[str, Any] = {
    "batch": 16,
    "context": 15,
    "steps": 12,
    "window": 6,
    "evaluations": 2,
    "eval_batch": 32,
    # three times as much leaves a deep model after so few steps where it began, in half of all draws
    "learning_rate": 0.003,
    "warmup_steps": 1,
}
LAYOUTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "pipelines": (
        {"op": "pipeline_parallel", "size": "deep", "microbatches": 4},
        ["1f1b", "gpipe", "zb-h1", "zb-h2", "megatron-3d"],
    ),
    "sequences": (
        {"op": "sequence_parallel", "size": "nano", "context": 13},
        ["ring-attention", "token-ring", "all-gather-sp", "ulysses"],
    ),
    "linear-sequences": (
        {"op": "sequence_parallel", "size": "nano", "context": 13, "attention": "gated-linear"},
        ["lasp", "zeco"],
    ),
    "experts": ({"op": "expert_parallel", "size": "nano", "experts": 8}, ["ep-alltoall", "tutel"]),
    "expert-inference": (
        {"op": "expert_inference", "size": "nano", "experts": 8, "context": 5},
        ["ep-decode", "exflow"],
    ),
}
"""For each suite what its point has of its own, and techniques."""
TOO_FEW_HEADS = "4 heads cannot be dealt out evenly to 8 ranks"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    """Return what all techniques did in one launch."""
    folder = tmp_path_factory.mktemp("eight")
    profile = yaml.safe_load(Path(content.find_runner("local-cpu")).read_text())
    runner = folder / "eight.yaml"
    runner.write_text(yaml.safe_dump(profile | {"runner": "eight", "max_ranks": RANKS}))
    suites = []
    for name, (own, techniques) in LAYOUTS.items():
        document = {
            "suite": f"training/eight-{name}",
            "version": 1,
            "family": "training",
            "why": "Layouts hold whatever the number of ranks.",
            "workload": {"ranks": RANKS} | SHORT | own,
            "baseline": techniques[0],
            "techniques": techniques,
            "protocol": {"launches": 1, "timeout": "120s"},
        }
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        suites.append(path)
    return {
        r.technique: r
        for r in results_of(
            run_suites(suites, folder=folder, runner=str(runner), seed=seeds.current()), "training"
        )
    }


@pytest.mark.parametrize("technique", [name for _, names in LAYOUTS.values() for name in names])
def test_eight_ranks_do_what_one_does(technique: str, found: dict[str, ConformanceResult]) -> None:
    result = found[technique]
    if technique == "ulysses":
        assert (result.status, result.reason) == ("unsupported", TOO_FEW_HEADS)
    else:
        assert result.status == "ok", result.reason
        assert result.problem is None
