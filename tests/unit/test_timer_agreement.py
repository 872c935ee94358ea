"""Agreement with timers of accelerators: judged from launches alone, and asked for only where there is a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from kernel_operators import ARITHMETIC

from paceline.base.errors import PrerequisiteError, UserError
from paceline.calibration import timers as timeragreement
from paceline.calibration.timers import DEVICE_TIMERS, agree, agreement_figures, timer_figures
from paceline.cli import application
from paceline.drivers import capabilities
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.stats.estimates import Launches

H200_FLOPS_PER_S, H200_BYTES_PER_S = {"bfloat16": 989e12, "float32": 67e12}, 4.8e12


def launches(*values: float) -> Launches:
    return Launches(values=dict(enumerate(values)), samples={i: [v] for i, v in enumerate(values)})


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (1.000e-3, 1.000e-3, True),
        (1.019e-3, 1.000e-3, True),
        (1.030e-3, 1.000e-3, False),
        (0.970e-3, 1.000e-3, False),
        (5.9e-6, 5.0e-6, True),
        (6.2e-6, 5.0e-6, False),
    ],
)
def test_timers_agree_within_two_per_cent_or_a_microsecond(own: float, other: float, expected: bool) -> None:
    assert agree(launches(own, own, own), launches(other, other, other)) is expected


def point(op: str, own: float, other: float | None) -> Any:
    def cell(metric: str, value: float) -> Any:
        return SimpleNamespace(
            metric=metric, launches=launches(value, value * 1.001), values={0: value, 1: value * 1.001}
        )

    cells = {("torch-eager", "latency"): cell("latency", own)}
    if other is not None:
        cells[("torch-eager", "graph_latency")] = cell("graph_latency", other)
    return SimpleNamespace(params={"op": op, "dtype": "float32", "m": 8}, cells=cells)


def test_a_kernel_that_the_other_timer_missed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [point("gemm", 1e-3, 1e-3), point("copy", 1e-3, 2e-3), point("triad", 1e-3, None)]
    monkeypatch.setattr(timeragreement, "points_of", lambda record: points)
    record: Any = SimpleNamespace(run=SimpleNamespace(run_id="r", host_class="h"))
    near, far, count = agreement_figures(record, "graph-replay")
    assert (near.name, near.reached) == ("gemm (m 8)", True)
    assert (far.name, far.reached, far.value) == ("copy (m 8)", False, pytest.approx(0.5))
    assert (count.value, count.limit, count.reached) == (2, 3, False)
    assert json.dumps(count.shortfall)
    points.clear()
    (nothing,) = agreement_figures(record, "graph-replay")
    assert not nothing.reached


@pytest.mark.parametrize("timer", DEVICE_TIMERS)
def test_without_the_device_the_command_says_that_it_needs_cuda(
    timer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(timeragreement, "accelerator", lambda: None)
    with pytest.raises(PrerequisiteError, match=f"--against={timer} needs cuda; torch sees no accelerator"):
        timer_figures(timer, "local-cuda", tmp_path)
    with pytest.raises(UserError, match="the runner local-cpu measures on cpu"):
        timer_figures(timer, "local-cpu", tmp_path)
    ended = CliRunner().invoke(application, ["calibrate", "--against", timer, "--results", str(tmp_path)])
    assert isinstance(ended.exception, PrerequisiteError)
    assert list(tmp_path.iterdir()) == []


def test_a_torch_that_cannot_be_asked_shows_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_TORCH_PROBE", "raise SystemExit(3)")
    assert capabilities.accelerator() is None
    monkeypatch.setattr(capabilities, "_TORCH_PROBE", 'print(\'{"accelerator": "cuda"}\')')
    assert capabilities.accelerator() == "cuda"


@pytest.mark.parametrize("timer", DEVICE_TIMERS)
def test_ten_kernels_reach_from_microseconds_to_tens_of_milliseconds(timer: str) -> None:
    suite = load_suite(content.find_suite(f"calibration/{timer}"))
    plan = make_plan([suite], load_runner(content.find_runner("local-cuda")), Selection())
    least = []
    for block in plan.blocks:
        params = block["params"]
        workload = ARITHMETIC[params["op"]]
        compute = workload.flops(params) / H200_FLOPS_PER_S[params["dtype"]]
        least.append(max(compute, workload.traffic(params) / H200_BYTES_PER_S))
    assert len(least) == 10
    assert min(least) < 5e-6
    assert max(least) > 2e-2
    wanted = {
        "do-bench": ("do-bench", "cold-flush", "none"),
        "graph-replay": ("none", "hot", "graph-replay"),
    }
    assert {
        (b["params"]["reference_timer"], b["protocol"]["cache"], b["protocol"]["extra_timers"])
        for b in plan.blocks
    } == {wanted[timer]}
