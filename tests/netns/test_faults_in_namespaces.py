"""What a rank that hangs or is stopped costs when every rank lives in a network namespace: its own case, and time.

One run of the runner ``netns-cpu`` with the faulty techniques of ``tests/distributed/faulty``. What the run started is
noted while it runs, so that nothing else on the machine is taken for its remains.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from leftover import processes_of
from measured import record_of

from paceline.records.format.record import Measurement
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.network.links import supported

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work"),
]
FAULTY = Path(__file__).parents[1] / "distributed" / "faulty" / "baselines" / "collectives" / "faulty.py"
RANKS = 3
TIMEOUT_S = 5
NOTICED_WITHIN_S = 5
"""What may pass beside the timeout until the ranks are looked at: a poll, the stacks, and a busy machine."""
GONE_WITHIN_S = 10
OPERATION = r"last operation: \w+ with rank \d, \d+ B, number \d+"
FAULTS = {
    "hangs-midway": rf"rank 1 \w+; {OPERATION}, in progress",
    "stops-itself": rf"rank 1 stopped by a signal; {OPERATION}, in progress",
}
HEALTHY = {("faulty", "native"), ("faulty", "ring"), ("healthy", "native"), ("healthy", "ring")}


@dataclass
class Run:
    """A run's results, and every process that was seen below this one while it ran."""

    measurements: dict[tuple[str, str], Measurement] = field(default_factory=dict)
    """By suite and label."""
    processes: dict[psutil.Process, str] = field(default_factory=dict)
    """Names and command lines of the launcher, the ranks, the holders of namespaces and the delay programs."""
    namespaces: set[str] = field(default_factory=set)
    """Network namespaces in which they lived."""
    alive: list[str] = field(default_factory=list)
    """Which of them, or of what else names the run's folder, outlived the run."""

    def watch(self, event: Mapping[str, Any]) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
                self.processes[process] = " ".join([process.name(), *process.cmdline()])
                self.namespaces.add(str(Path(f"/proc/{process.pid}/ns/net").readlink()))

    def count(self, words: str) -> int:
        return sum(words in line for line in self.processes.values())


def write_suite(folder: Path, name: str, size: str, *faults: str) -> Suite:
    path = folder / f"{name}.yaml"
    text = {
        "suite": f"collectives/{name}",
        "version": 1,
        "family": "collectives",
        "why": "A rank that hangs must cost its own case only.",
        "workload": {"op": "all_reduce", "payload": "gaussian"},
        "baseline": "native",
        "techniques": ["native", *faults, "ring"],
        "matrix": {"size_bytes": [size], "ranks": [RANKS], "link": ["delay-1ms"]},
        "protocol": {
            "launches": 1,
            "warmup": "none",
            "min_samples": 3,
            "max_samples": 5,
            "kernel_calls": 0,
            "timeout": f"{TIMEOUT_S}s",
        },
    }
    path.write_text(yaml.safe_dump(text))
    return load_suite(path, extra=[FAULTY])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("faults")
    suites = [write_suite(folder, "faulty", "4KiB", *FAULTS), write_suite(folder, "healthy", "64KiB")]
    run = Run()
    for found in record_of(suites, folder, runner="netns-cpu", on_event=run.watch).measurements:
        run.measurements[(found.suite.partition("/")[2], found.label)] = found
    _, alive = psutil.wait_procs(run.processes, timeout=GONE_WITHIN_S)
    run.alive = [run.processes[process] for process in alive]
    run.alive += processes_of(folder)
    return run


@pytest.mark.parametrize("name", FAULTS)
def test_the_rank_and_its_last_operation_are_named(run: Run, name: str) -> None:
    found = run.measurements[("faulty", name)]
    assert found.status == "timeout"
    expected = f"a call in stage 'gate' did not end within {TIMEOUT_S} s: {FAULTS[name]}"
    assert re.search(expected, found.reason or ""), found.reason


@pytest.mark.parametrize("name", FAULTS)
def test_the_hang_is_ended_when_its_time_is_over(run: Run, name: str) -> None:
    detail = run.measurements[("faulty", name)].detail
    assert isinstance(detail, list)
    assert [report["rank"] for report in detail] == list(range(RANKS))
    assert TIMEOUT_S <= max(report["silent_s"] for report in detail) <= TIMEOUT_S + NOTICED_WITHIN_S


def test_all_other_cases_of_the_plan_finish(run: Run) -> None:
    assert set(run.measurements) == HEALTHY | {("faulty", name) for name in FAULTS}
    assert {run.measurements[key].status for key in HEALTHY} == {"ok"}


def test_no_rank_and_no_namespace_outlives_the_run(run: Run) -> None:
    assert run.count("paceline:") >= len(FAULTS) * RANKS
    assert run.count("worker/network/delay.py") >= len(FAULTS) * RANKS
    assert len(run.namespaces) > RANKS + 1
    assert not run.alive
