"""Honest kernels, however unusual, are measured in each of ten launches: no fence refuses one of them now and then.

``paceline`` itself chooses the isolation, as for anybody. Draws follow from the module's seed, which a failure says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from measured import record_of

from paceline.base.techniques.technique import read_source
from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite

HONEST = sorted((Path(__file__).parents[1] / "mutants" / "kernels_honest").glob("*.py"))
LAUNCHES = 10
BASELINE = "torch-eager"
POINTS: dict[str, dict[str, int]] = {
    "gemm": {"m": 96, "n": 80, "k": 192},
    "add_rmsnorm": {"tokens": 24, "hidden": 96},
    "attention_decode": {"batch": 3, "context": 65, "heads": 4, "kv_heads": 2, "head_dim": 16},
    "dequant_gemm": {"m": 5, "n": 24, "k": 64, "bits": 4, "group": 32},
}
SHORT = {"launches": LAUNCHES, "warmup": "none", "min_samples": 8, "max_samples": 8, "max_seconds": 20}
Runs = Callable[[str, tuple[str, ...]], dict[str, list[Measurement]]]

CASES = sorted(
    (operation, source.info.name)
    for path in HONEST
    for source in read_source(path, module=f"user:{path.stem}")
    for operation in source.info.implements
)
"""Operation and technique."""
TOGETHER = 6
"""Techniques that share a run, which takes minutes."""
GROUPS: dict[tuple[str, str], tuple[str, ...]] = {}
for _operation in POINTS:
    _names = [name for operation, name in CASES if operation == _operation]
    for _begin in range(0, len(_names), TOGETHER):
        _group = tuple(_names[_begin : _begin + TOGETHER])
        GROUPS |= {(_operation, name): _group for name in _group}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return what measures a group of techniques once, and gives their times by name."""

    @cache
    def of(operation: str, names: tuple[str, ...]) -> dict[str, list[Measurement]]:
        folder = tmp_path_factory.mktemp(operation)
        document: dict[str, Any] = {
            "suite": f"kernels/honest-{operation.replace('_', '-')}",
            "version": 1,
            "family": "kernels",
            "description": "Honest kernels are not refused.",
            "workload": {"op": operation, **POINTS[operation]},
            "baseline": BASELINE,
            "techniques": [BASELINE, *names],
            "protocol": {**SHORT, "timeout": "60s"},
        }
        path = folder / "suite.yaml"
        path.write_text(yaml.safe_dump(document))
        found: dict[str, list[Measurement]] = {}
        for line in record_of([load_suite(path, extra=HONEST)], folder).measurements:
            if line.status != "ok" or line.metric.name == "latency":
                found.setdefault(line.label, []).append(line)
        return found

    return of


def test_there_are_twenty_five_of_them_at_least() -> None:
    assert len({name for _, name in CASES}) >= 25
    assert {operation for operation, _ in CASES} == set(POINTS)


@pytest.mark.parametrize(("operation", "name"), CASES)
def test_an_honest_kernel_is_measured_in_every_launch(operation: str, name: str, runs: Runs) -> None:
    lines = runs(operation, GROUPS[operation, name])[name]
    assert Counter((line.status, line.reason) for line in lines) == {("ok", None): LAUNCHES}
    assert {line.launch for line in lines} == set(range(LAUNCHES))
