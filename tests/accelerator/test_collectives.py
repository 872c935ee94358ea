"""Collectives on stub accelerators, joined by a backend that keeps NCCL's rules and lets no host wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import seeds
from outcomes import median_of, troubles

from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.workflows.conformance import conformance, points_of, problems_of

RunSuite = Callable[..., RunRecord]
FAMILY = "collectives"
SLOW = {"topk-sparse"}
"""Its gate makes twelve thousand calls of sixty operators: minutes on the stub."""
ON_SQUARES = {"cannon", "panel-all-gather"}
"""Those that need a square number of ranks."""
OF_FOUR = ("native", "ring", "star", "recursive-doubling", "tree", "gossip-pair")
"""Those whose messages differ with four ranks, one of each shape."""
TECHNIQUES = sorted(
    name
    for name, source in content.techniques(FAMILY).items()
    if name not in SLOW and any(points_of(FAMILY, operation) for operation in source.info.implements)
)
SUITE = """
suite: collectives/stub
version: 1
family: collectives
description: Sums on the stub.
workload: {op: all_reduce, size_bytes: 4KiB}
baseline: native
techniques: [native, %s]
matrix: {ranks: [2]}
protocol: {launches: 1, warmup: none, min_samples: 3, max_samples: 4, max_seconds: 0.05, timeout: 60s}
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_technique_conforms(ranks: int, runner: Path, tmp_path: Path) -> None:
    names = sorted({*TECHNIQUES} - ON_SQUARES) if ranks == 2 else sorted({*OF_FOUR} | ON_SQUARES)
    results = conformance(
        names,
        family=FAMILY,
        ranks=(ranks,),
        brief=True,
        folder=tmp_path,
        runner=str(runner),
        seed=seeds.current(),
    )
    assert problems_of(results) == []
    assert {r.technique for r in results if r.status == "ok"} == set(names)


def test_a_call_ends_when_the_device_is_done(run_suite: RunSuite) -> None:
    record = run_suite(SUITE % "sleepy-sum", "sleepy_sum")
    assert troubles(record) == []
    assert median_of(record, "sleepy-sum", "latency") >= 10e-3


def test_who_breaks_a_rule_of_nccl_is_named_with_the_operation_and_the_rule(run_suite: RunSuite) -> None:
    record = run_suite(SUITE % "sends-first", "sends_first")
    (trouble,) = troubles(record)
    assert trouble.startswith("sends-first: ")
    waits = r"rank 0, operation \d+ \(send of \d+ bytes to rank 1\), waits for rank 1"
    assert re.search(f"it breaks a rule of NCCL: {waits}", trouble)
    assert "a send ends only when its receive runs" in trouble
