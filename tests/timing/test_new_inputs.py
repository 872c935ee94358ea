"""A kernel that seems slow on new inputs is refused only when it is so again, in random order with known ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import seeds
import yaml
from figures import Figures

from paceline.drivers.measure import measure
from paceline.families.kernels.core import candidate
from paceline.families.kernels.core.accounting import slowdown_in_turn
from paceline.records.format.record import Measurement
from paceline.records.store.folder import read_record
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite


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
        make_plan(loaded, load_runner(folder / "runner.yaml"), Selection(seed=seeds.current())),
        loaded,
        folder / "results",
    )
    assert outcome.path is not None
    return list(read_record(outcome.path).measurements)


@pytest.mark.measured
def test_a_suspicion_that_noise_raised_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figures
) -> None:
    settled: list[tuple[float, int, int]] = []

    def told(usual_ns: float, passes: list[int], new: list[int]) -> float:
        settled.append((slowdown_in_turn(usual_ns, passes, new), len(passes), len(new)))
        return settled[-1][0]

    monkeypatch.setattr(candidate, "slowdown_on_new_inputs", lambda *_: 9.0)
    monkeypatch.setattr(candidate, "slowdown_in_turn", told)
    assert {m.status for m in measured(tmp_path)} == {"ok"}
    # 0.89 to 1.14 were seen with two busy processes on two cores
    (slowdown, *numbers) = settled[-1]
    figure("slowdown on new inputs", slowdown, unit="ratio", most=candidate.MAX_SLOWDOWN)
    assert set(numbers) == {len(settled) * candidate.IN_TURN_PASSES}


def test_nobody_is_refused_by_one_round_of_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def slow(usual_ns: float, passes: list[int], new: list[int]) -> float:
        rounds.append(len(new))
        return 1.6

    monkeypatch.setattr(candidate, "slowdown_on_new_inputs", lambda *_: 9.0)
    monkeypatch.setattr(candidate, "slowdown_in_turn", slow)
    (found,) = measured(tmp_path)
    assert found.status == "refused"
    assert "1.6 times slower on inputs that share nothing with earlier ones" in (found.reason or "")
    assert rounds == [candidate.IN_TURN_PASSES * n for n in range(1, candidate.CLOCK_REPEATS + 1)]
