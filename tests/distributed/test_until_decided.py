"""A run that is measured until decided, on real ranks: how it ends, and what is left of it when it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import paceline_commands
import pytest
from leftover import assert_nothing_left, processes_of

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK
from paceline.records.format.record_file import content_of
from paceline.records.store.folder import RunRecord, read_record, record_paths
from paceline.report.words.stops import stops_of
from paceline.stats.sequential import design, level_after

SUITE = """\
suite: collectives/decide
version: 1
family: collectives
description: A ring needs two messages where one exchange does.
workload: {op: all_reduce, payload: gaussian, size_bytes: 1KiB}
baseline: native
techniques: [native, ring]
matrix: {ranks: [1, 2]}
protocol: {until: decided, launches: 3..8, max_seconds: 0.1, warmup_seconds: 0.05, kernel_calls: 0, ci_target: 0.2}
metrics:
  latency: {margin: 0.05}
  messages: {margin: 0}
"""
LIMIT_S = 240


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "decide.yaml"
    path.write_text(SUITE)
    return path


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        paceline_commands.command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(*arguments: object) -> str:
    process = start(*arguments)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == EXIT_OK, output
    return output


VICTIMS = {"fork server": r"(?!.* paceline:).*paceline\.worker\.ranks\.preloaded", "rank": r".* paceline:\d"}
"""Who is killed → what its line of the machine's processes looks like."""


def kill(victim: str, store: Path, run: subprocess.Popen[str]) -> bool:
    """Kill one process of a run once its first launch has results; tell whether there was one."""
    deadline_s = time.monotonic() + 90
    while run.poll() is None and time.monotonic() < deadline_s:
        kept = next(iter(store.glob("20*/*/*.jsonl.partial")), None)
        if kept is not None and '"launch":1,' in kept.read_text():
            found = [line for line in processes_of(store) if re.match(VICTIMS[victim], line)]
            if found:
                os.kill(int(found[0].split()[0]), signal.SIGKILL)
                return True
        time.sleep(0.02)
    return False


def record_of(store: Path) -> RunRecord:
    (path,) = record_paths(store)
    return read_record(path)


def assert_whole(record: RunRecord, looks: Sequence[int]) -> None:
    """Every point has ended, with all results of the launches that it says, once each."""
    ends = {s.block: s for s in stops_of(record)}
    assert len(ends) == len({m.block for m in record.measurements})
    assert len(stops_of(record)) == len(ends)
    for block, end in ends.items():
        own = [m for m in record.measurements if m.block == block and m.metric.name == "latency"]
        assert sorted((m.launch, m.label) for m in own) == sorted(
            (launch, label) for launch in range(end.launches) for label in ("native", "ring")
        )
        assert end.launches in looks
        assert end.why in ("decided", "launches", "out of reach")


@pytest.mark.measured
def test_a_run_ends_when_decided_and_its_intervals_pay_for_the_looks_made(
    suite: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    output = run("run", suite, "--results", store)
    record = record_of(store)
    found = design(3, 8, budget=False)
    assert_whole(record, found.looks)
    assert "3 to 8 launches until decided" in output
    assert re.search(r"\d points? decided \(\d+( to \d+)? launches\)", output)
    stops = {stop.block: stop for stop in stops_of(record)}
    for comparison in compare_points(points_of(record)):
        if comparison.effect.method != "constant":
            launches = stops[comparison.point.block].launches
            assert comparison.effect.confidence == pytest.approx(1 - level_after(found.looks, launches))
    decided = {s.block for s in stops_of(record) if s.why == "decided"}
    verdicts = [c.verdict.name for c in compare_points(points_of(record)) if c.point.block in decided]
    assert decided and "inconclusive" not in verdicts


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_an_interrupted_run_goes_on_and_ends_once(
    number: signal.Signals, suite: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    process = start("run", suite, "--results", store, "--quiet")
    deadline_s = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < deadline_s:
        kept = next(iter(store.glob("20*/*/*.jsonl.partial")), None)
        if kept is not None and '"launch":1,' in kept.read_text():
            break
        time.sleep(0.02)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (EXIT_INFRASTRUCTURE if number == signal.SIGINT else -number), output
    assert_nothing_left(store)
    (job,) = (store / "jobs").iterdir()
    run("run", "--resume", job.name, "--results", store, "--quiet")
    record = record_of(store)
    assert_whole(record, design(3, 8, budget=False).looks)
    lines = content_of(record.path).decode().splitlines()
    ids = [json.loads(line)["record_id"] for line in lines if line.startswith('{"line":"measurement"')]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("victim", ["fork server", "rank"])
def test_a_run_outlives_what_it_started_and_ends_with_what_was_decided(
    victim: str, suite: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    process = start("run", suite, "--results", store, "--quiet")
    killed = kill(victim, store, process)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert killed, output
    assert process.returncode in (EXIT_OK, EXIT_INFRASTRUCTURE), output
    assert_nothing_left(store)
    record = record_of(store)
    assert_whole(record, design(3, 8, budget=False).looks)
    lost = [m for m in record.measurements if m.status != "ok"]
    assert not lost or (victim == "rank" and len({(m.launch, m.block) for m in lost}) == 1), output
    assert all(m.reason for m in lost)


def test_a_budget_ends_a_run_with_what_it_has_and_no_result_is_missing(suite: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    output = run("run", suite, "--results", store, "--launches", "3..60", "--budget", "100ms")
    record = record_of(store)
    assert {(s.launches, s.why) for s in stops_of(record)} == {(1, "budget")}
    assert "2 points ended by the time budget (1 launch)" in output
    skipped = [m.reason for m in record.measurements if m.status == "skipped"]
    assert set(skipped) == {"the time budget was over before its first launch"}


def test_an_exported_job_decides_by_itself(suite: Path, tmp_path: Path) -> None:
    job, store = tmp_path / "job", tmp_path / "store"
    run("job", "export", suite, "--output", job)
    ended = subprocess.run(
        ["sh", str(job / "run.sh")],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert ended.returncode == EXIT_OK, ended.stderr
    assert "Traceback" not in ended.stderr
    run("job", "collect", job, "--results", store)
    assert_whole(record_of(store), design(3, 8, budget=False).looks)
