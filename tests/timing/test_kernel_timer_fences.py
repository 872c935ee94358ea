"""Other timers in real cells on a CPU: what is asked for is measured, the rest is absent, and cheats are found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from measured import fenced_runner, record_of

from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite

SOURCE = """
import torch
from paceline import technique

PROFILER = getattr(torch.autograd, "pro" + "filer")


class Product:
    def __init__(self, problem):
        self.problem = problem


@technique(name="lazy-when-watched", family="kernels", implements=("gemm",), summary="computes only unwatched")
class Lazy(Product):
    def run(self, a, b, c):
        if not PROFILER._is_profiler_enabled:
            torch.mm(a, b, out=c)


@technique(name="patches-the-profiler", family="kernels", implements=("gemm",), summary="patches while watched")
class Patches(Product):
    def run(self, a, b, c):
        torch.mm(a, b, out=c)
        if PROFILER._is_profiler_enabled:
            PROFILER.profile.__exit__ = lambda *arguments: None


@technique(name="stops-the-profiler", family="kernels", implements=("gemm",), summary="stops it while watched")
class Stops(Product):
    def run(self, a, b, c):
        if PROFILER._is_profiler_enabled:
            getattr(torch.autograd, "_disable" + "_profiler")()
        torch.mm(a, b, out=c)
"""
NAMED = """
import torch
from paceline import technique


@technique(name="names-the-profiler", family="kernels", implements=("gemm",), summary="names it")
class Names:
    def __init__(self, problem):
        self.enabled = torch.autograd.profiler._is_profiler_enabled

    def run(self, a, b, c):
        torch.mm(a, b, out=c)
"""
EXPECTED = {
    "torch-eager": ("ok", ""),
    "split-k": ("ok", ""),
    "lazy-when-watched": ("incorrect", r"call under another timer: c holds NaN"),
    "patches-the-profiler": ("refused", r"it replaced torch\.autograd\.profiler\.profile\.__exit__"),
    "stops-the-profiler": ("ok", ""),
    "names-the-profiler": ("refused", r"line \d+: uses torch\.autograd\.profiler"),
}
"""Status and reason of each."""
ABSENT = {
    "host_latency": "on a CPU latency itself is timed by the host's clock",
    "graph_latency": "a CPU has no graph of launches to replay",
}


def run(folder: Path, timers: str, techniques: list[str], *, runner: str = "local-cpu") -> list[Measurement]:
    files = [folder / "watched.py", folder / "named.py"]
    for path, text in zip(files, (SOURCE, NAMED), strict=True):
        path.write_text(text)
    document: dict[str, Any] = {
        "suite": f"kernels/timers-{timers}",
        "version": 1,
        "family": "kernels",
        "why": "Other timers must not lie.",
        "workload": {"op": "gemm", "m": 64, "n": 96, "k": 128},
        "baseline": "torch-eager",
        "techniques": techniques,
        "protocol": {
            **{"launches": 1, "warmup": "none", "min_samples": 8, "max_samples": 8, "max_seconds": 60},
            "extra_timers": timers,
        },
        "metrics": {"latency": {}},
    }
    path = folder / f"{timers}.yaml"
    path.write_text(yaml.safe_dump(document))
    suite = load_suite(path, extra=files)
    return list(record_of([suite], folder, runner=runner).measurements)


@pytest.fixture(scope="module")
def measurements(tmp_path_factory: pytest.TempPathFactory) -> list[Measurement]:
    folder = tmp_path_factory.mktemp("timers")
    return run(folder, "all", list(EXPECTED), runner=str(fenced_runner(folder)))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_technique_ends_for_its_own_reason(name: str, measurements: list[Measurement]) -> None:
    status, reason = EXPECTED[name]
    found = [m for m in measurements if m.label == name and m.metric.name == "latency"]
    assert [m.status for m in found] == [status]
    assert re.search(reason, found[0].reason or ""), found[0].reason


@pytest.mark.parametrize("name", ["torch-eager", "split-k"])
def test_the_profiler_saw_operators_and_other_timers_are_absent(
    name: str, measurements: list[Measurement]
) -> None:
    (profiled,) = [m for m in measurements if m.label == name and m.metric.name == "profiled_time"]
    assert len(profiled.samples) == 5
    assert 1e-6 < min(profiled.samples) < 0.1  # seconds; others may have waited for a core
    (first,) = [m for m in measurements if m.label == name and m.absent]
    assert ABSENT.items() <= (first.absent or {}).items()


def test_a_profiler_that_was_stopped_gives_no_time_and_takes_none(measurements: list[Measurement]) -> None:
    own = [m for m in measurements if m.label == "stops-the-profiler"]
    assert "profiled_time" not in {m.metric.name for m in own}
    (absent,) = [m.absent for m in own if m.absent]
    assert absent["profiled_time"]


def test_in_a_sandbox_only_the_judge_keeps_time_and_what_is_done_to_timers_has_no_effect(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, "all", list(EXPECTED))
    isolations = {m.isolation for m in found if m.label == "lazy-when-watched"}
    if isolations == {"unisolated"}:
        pytest.skip("nothing isolates here: apt-get install bubblewrap")
    candidates = set(EXPECTED) - {"torch-eager", "split-k"}
    assert {m.label for m in found if m.metric.name == "profiled_time"} == {"torch-eager", "split-k"}
    for name in candidates:
        (latency,) = [m for m in found if m.label == name and m.metric.name == "latency"]
        assert (latency.status, len(latency.samples)) == ("ok", 8)
        assert "only the judge's clock" in (latency.absent or {})["profiled_time"]


def test_a_suite_that_asks_for_no_other_timer_gets_none(tmp_path: Path) -> None:
    found = run(tmp_path, "none", ["torch-eager"])
    assert not {"host_latency", "graph_latency", "profiled_time"} & {m.metric.name for m in found}
    assert all(not ABSENT.keys() & (m.absent or {}).keys() for m in found)
    assert {m.status for m in found} == {"ok"}
