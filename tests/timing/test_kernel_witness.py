"""A kernel that is slow on new inputs is refused only when PyTorch's operators, in turn with it, are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paceline.drivers.measure import measure
from paceline.families.kernels import accounting, arm
from paceline.plan import Selection, make_plan
from paceline.profile import load_runner
from paceline.record import Measurement
from paceline.store import read_record
from paceline.suite import load_suite


def measured(folder: Path) -> list[Measurement]:
    """Time the norm of PyTorch's operators in this process, so that what its judge allows can be replaced."""
    suite = {
        "suite": "kernels/example",
        "version": 1,
        "family": "kernels",
        "why": "A plain kernel has nothing to hide.",
        "workload": {"op": "add_rmsnorm", "tokens": 64, "hidden": 96},
        "baseline": "torch-eager",
        "techniques": ["torch-eager"],
        "matrix": {},
        "protocol": {
            "launches": 1,
            "warmup": "none",
            "min_samples": 16,
            "max_samples": 16,
            "max_seconds": 90,
        },
        "metrics": {"latency": {}},
    }
    runner = {"runner": "in-process", "driver": "debug", "device": "cpu", "why": "A test of the judge."}
    (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
    (folder / "runner.yaml").write_text(yaml.safe_dump(runner))
    loaded = [load_suite(folder / "suite.yaml")]
    outcome = measure(
        make_plan(loaded, load_runner(folder / "runner.yaml"), Selection()), loaded, folder / "results"
    )
    assert outcome.path is not None
    return list(read_record(outcome.path).measurements)


@pytest.mark.parametrize(("room", "status"), [(100.0, "ok"), (0.01, "refused")])
def test_what_new_inputs_cost_a_witness_decides_a_dispute(
    room: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (arm, accounting):
        monkeypatch.setattr(module, "MAX_SLOWDOWN", 0.0)
    monkeypatch.setattr(accounting, "WITNESS_ROOM", room)
    found = measured(tmp_path)
    assert {m.status for m in found} == {status}
    if status == "refused":
        assert "PyTorch's operators in turn with it are allowed 0.0" in (found[0].reason or "")
    assert list(tmp_path.rglob("cell-*-plain.log"))
