"""Honest techniques, however unusual, are measured in each of ten launches: of sums over ranks, training and serving.

Kernels have theirs in ``tests/timing/test_honest_in_ten_launches.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from measured import record_of
from once import once

from paceline.base.techniques.technique import read_source
from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import points_of

HONEST = sorted((Path(__file__).parents[1] / "mutants" / "honest").glob("*.py"))
LAUNCHES = 10
BRIEF = {"warmup": "none", "min_samples": 20, "max_samples": 20, "max_seconds": 5, "kernel_calls": 0}
POINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "all_reduce": ("native", {"size_bytes": 12300, "ranks": 3, "payload": "gaussian"}),
    "data_parallel": ("ddp-naive", {}),
    "cache": ("full-cache", {"requests": 6}),
    "denoise": ("sequential-denoising", {"images": 8, "steps": 10, "ranks": 2}),
    "overlap": ("sequential-operators", {"batch_rows": 96}),
    "decode": ("autoregressive", {"requests": 2, "output_tokens": 30}),
}
"""Operation → the baseline beside them, and the point."""
SOURCES = [s for path in HONEST for s in read_source(path, module=f"user:{path.stem}")]
SHORT = {"ranks": 2, "steps": 24, "window": 8, "proof": "brief"}
"""Of training: ten launches at the length of conformance take minutes."""
CASES = sorted((operation, s.info.name) for s in SOURCES for operation in s.info.implements)
FAMILIES = {operation: s.info.family for s in SOURCES for operation in s.info.implements}


@pytest.fixture(scope="module")
def lines_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Mapping[str, list[Measurement]]]:
    """Return what measures all techniques of an operation once, and gives their lines by name."""

    @once
    def lines(operation: str) -> Mapping[str, list[Measurement]]:
        folder = tmp_path_factory.mktemp(operation)
        family, (baseline, point) = FAMILIES[operation], POINTS[operation]
        given = points_of("training", operation)[0] | SHORT if family == "training" else point
        document = {
            "suite": f"{family}/honest-{operation.replace('_', '-')}",
            "version": 1,
            "family": family,
            "description": "Honest techniques are not refused.",
            "workload": {"op": operation, **{k: v for k, v in given.items() if k != "op"}},
            "baseline": baseline,
            "techniques": [baseline, *(name for o, name in CASES if o == operation)],
            "protocol": {
                "launches": LAUNCHES,
                "timeout": "60s",
                **(BRIEF if family == "collectives" else {}),
            },
        }
        path = folder / "suite.yaml"
        path.write_text(yaml.safe_dump(document))
        found: dict[str, list[Measurement]] = {}
        for line in record_of([load_suite(path, extra=HONEST)], folder).measurements:
            found.setdefault(line.label, []).append(line)
        return found

    return lines


def test_there_are_some_of_each_family_and_with_kernels_more_than_twenty_five() -> None:
    counts = Counter(FAMILIES[operation] for operation, _ in CASES)
    assert counts["collectives"] >= 8
    assert counts["training"] >= 5
    assert counts["serving"] >= 4
    assert {operation for operation, _ in CASES} == set(POINTS)


@pytest.mark.parametrize(("operation", "name"), CASES)
def test_an_honest_technique_is_measured_in_every_launch(
    operation: str, name: str, lines_of: Callable[[str], Mapping[str, list[Measurement]]]
) -> None:
    own = lines_of(operation)[name]
    assert {(line.status, line.reason) for line in own} == {("ok", None)}
    assert {line.launch for line in own} == set(range(LAUNCHES))
