"""A kernel that is slow on new inputs is refused only when PyTorch's operators, in turn with it, are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paceline.drivers.measure import measure
from paceline.families.kernels.core import candidate, run
from paceline.records.record import Measurement
from paceline.records.store import read_record
from paceline.spec.plan import Selection, make_plan
from paceline.spec.profile import load_runner
from paceline.spec.suite_file import load_suite
from paceline.worker.session import CaseError


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


@pytest.mark.parametrize(("allowance", "status"), [(1e9, "ok"), (0.0, "refused")])
def test_a_control_kernel_decides_a_dispute(
    allowance: float, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testimony: list[tuple[list[int], list[tuple[int, int]]]] = []

    def allowed(usual_ns: float, passes: list[int], new: list[tuple[int, int]]) -> float:
        testimony.append((passes, new))
        return allowance

    monkeypatch.setattr(candidate, "MAX_SLOWDOWN", 0.0)
    monkeypatch.setattr(candidate, "controlled_slowdown", allowed)
    found = measured(tmp_path)
    assert {m.status for m in found} == {status}
    if status == "refused":
        assert "PyTorch's operators in turn with it are allowed 0" in (found[0].reason or "")
    ((passes, new),) = testimony
    assert len(passes) == len(new) == 2 * candidate.CLOCK_PASSES
    assert min(passes) > 0
    assert list(tmp_path.rglob("cell-*-plain.log"))


def test_a_control_kernel_that_cannot_be_had_excuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate, "MAX_SLOWDOWN", 0.0)
    monkeypatch.setattr(
        run, "_open_control", lambda *_: (_ for _ in ()).throw(CaseError("out_of_memory", "too big"))
    )
    found = measured(tmp_path)
    assert {m.status for m in found} == {"refused"}
    assert "with no control kernel (too big) it is allowed 0" in (found[0].reason or "")
