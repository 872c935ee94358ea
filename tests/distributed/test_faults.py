"""What a faulty technique, a killed controller or Ctrl-C costs: its own case, and nothing that had finished.

Real runs of the command line over ``tests/distributed/faulty``, whose techniques fail on rank 1 in the fifth call.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import paceline_commands
import pytest
from leftover import GONE_WITHIN_S, assert_nothing_left, processes_of

import paceline
from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK
from paceline.records.format.record_file import content_of
from paceline.records.store.folder import RunRecord, read_record, record_paths
from paceline.worker.network.links import supported

CONTENT = Path(__file__).parent / "faulty"
ADDED = {"PYTHONPATH": str(Path(paceline.__file__).parents[1]), "PACELINE_CONTENT": str(CONTENT)}
RUN_LIMIT_S = 180
MEASUREMENT = '{"line":"measurement"'
NUM_NAMESPACES = 3
"""That a run has at least: of two ranks, and of the switch between them."""
NUM_SLOW_RESULTS = 2 * 2 * 2
"""Launches × sizes × techniques of the suite ``slow``."""


def command(*arguments: object) -> list[str]:
    return paceline_commands.command(*arguments)


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        env={**os.environ, **ADDED},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def record_of(store: Path) -> RunRecord:
    (path,) = record_paths(store)
    return read_record(path)


def endings(record: RunRecord) -> dict[str, tuple[str, str]]:
    return {m.label: (m.status, m.reason or "") for m in record.measurements}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    store = tmp_path_factory.mktemp("faulty")
    run = start("run", "collectives/faulty", "--runner", "faulty-cpu", "--results", store, "--quiet")
    output, _ = run.communicate(timeout=RUN_LIMIT_S)
    assert run.returncode == EXIT_INFRASTRUCTURE, output
    assert_nothing_left(store)
    return record_of(store)


OPERATION = r"last operation: \w+( with rank \d)?, \d+ B, number \d+"
FAULTS = {
    "kills-itself": ("crashed", rf"rank 1 was killed by signal 9 \(SIGKILL\); {OPERATION}, in progress"),
    "stops-itself": (
        "timeout",
        rf"a call in stage 'gate' did not end within 5 s: rank 1 stopped by a signal; {OPERATION}, in progress",
    ),
    "hangs": (
        "timeout",
        rf"a call in stage 'gate' did not end within 5 s: rank 1 \w+; {OPERATION}, finished",
    ),
    "raises": ("crashed", rf"rank 1: ZeroDivisionError: the fifth call.*; {OPERATION}, in progress"),
    "devours-memory": ("out_of_memory", rf"rank 1: .*allocate memory.*; {OPERATION}, in progress"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_in_a_reason_that_names_the_rank_and_its_last_operation(
    name: str, faulty: RunRecord
) -> None:
    status, pattern = FAULTS[name]
    found, reason = endings(faulty)[name]
    assert found == status, reason
    assert re.search(pattern, reason), reason


def test_a_hang_is_reported_with_what_every_rank_was_doing(faulty: RunRecord) -> None:
    for name in ("stops-itself", "hangs"):
        (failed,) = [m for m in faulty.measurements if m.label == name]
        assert isinstance(failed.detail, list)
        assert [report["rank"] for report in failed.detail] == [0, 1, 2]
        assert all(report["last_operation"] and report["context"] for report in failed.detail)


def test_other_cases_of_the_same_block_finish(faulty: RunRecord) -> None:
    ended = endings(faulty)
    assert {ended["native"][0], ended["ring"][0]} == {"ok"}
    assert set(ended) == {"native", "ring", *FAULTS}


@pytest.mark.root
@pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work")
def test_no_namespace_outlives_a_run_with_faults(tmp_path: Path) -> None:
    before, own = namespaces(), set[str]()
    run = start(
        *("run", "collectives/faulty", "--techniques", "native,kills-itself,stops-itself"),
        *("--runner", "faulty-netns", "--results", tmp_path, "--quiet"),
    )

    def has_ended() -> bool:
        own.update(namespaces(tmp_path) - before)
        return run.poll() is not None

    wait_until(has_ended, limit_s=RUN_LIMIT_S)
    output, _ = run.communicate(timeout=1)
    assert run.returncode == EXIT_INFRASTRUCTURE, output
    assert_nothing_left(tmp_path)
    assert len(own) >= NUM_NAMESPACES
    wait_until(lambda: not namespaces() & own)
    assert not namespaces() & own
    ended = endings(record_of(tmp_path))
    assert ended["native"][0] == "ok"
    for name in ("kills-itself", "stops-itself"):
        assert re.search(FAULTS[name][1], ended[name][1]), ended[name]


@pytest.mark.root
@pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work")
def test_no_namespace_outlives_a_killed_controller(tmp_path: Path) -> None:
    before, own = namespaces(), set[str]()
    run = start("run", "collectives/slow", "--runner", "faulty-netns", "--results", tmp_path, "--quiet")

    def has_begun() -> bool:
        own.update(namespaces(tmp_path) - before)
        return len(own) >= NUM_NAMESPACES

    wait_until(has_begun, limit_s=60)
    assert has_begun()
    run.kill()
    run.communicate()
    assert_nothing_left(tmp_path)
    wait_until(lambda: not namespaces() & own)
    assert not namespaces() & own


def namespaces(folder: Path | None = None) -> set[str]:
    """Return the network namespaces in which a process lives: a holder, a delay program or a rank.

    Those of others come and go beside this test: with a folder, only of processes that work there.
    """
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if folder is None or (process / "cwd").readlink().is_relative_to(folder):
                found.add(str((process / "ns/net").readlink()))
        except OSError:
            continue
    return found


def wait_until(happened: Callable[[], bool], limit_s: float = GONE_WITHIN_S) -> None:
    deadline_s = time.monotonic() + limit_s
    while not happened() and time.monotonic() < deadline_s:
        time.sleep(0.05)


def partial(store: Path) -> Path | None:
    return next(iter(store.glob("20*/*/*.jsonl.partial")), None)


def finished_lines(store: Path) -> int:
    path = partial(store)
    return path.read_text().count(MEASUREMENT) if path else 0


def interrupt(store: Path, number: signal.Signals) -> tuple[subprocess.Popen[str], str]:
    """Start the slow suite, send the controller a signal once something has finished, and return its output."""
    run = start("run", "collectives/slow", "--results", store, "--quiet")
    wait_until(lambda: finished_lines(store) > 0 or run.poll() is not None, limit_s=90)
    assert run.poll() is None, run.communicate()[0]
    run.send_signal(number)
    output, _ = run.communicate(timeout=60)
    assert_nothing_left(store)
    return run, output


def resume(store: Path) -> RunRecord:
    (job,) = (store / "jobs").iterdir()
    kept = partial(store)
    assert kept is not None
    # a controller that is killed while it writes leaves a piece of a line, which is no result yet
    whole, _, _ = kept.read_text().rpartition("\n")
    lines = [line for line in whole.splitlines() if MEASUREMENT in line]
    assert lines
    run = start("run", "--resume", job.name, "--results", store, "--quiet")
    output, _ = run.communicate(timeout=RUN_LIMIT_S)
    assert run.returncode == EXIT_OK, output
    record = record_of(store)
    assert partial(store) is None
    text = content_of(record.path).decode()
    assert all(text.count(line) == 1 for line in lines), "what had finished was lost, changed or doubled"
    return record


def assert_complete(record: RunRecord) -> None:
    results = {(m.launch, m.block, m.label) for m in record.measurements}
    assert len(results) == NUM_SLOW_RESULTS
    assert all(m.status == "ok" for m in record.measurements)
    ids = [m.record_id for m in record.measurements]
    assert len(ids) == len(set(ids))


def test_a_killed_controller_leaves_no_ranks_and_its_run_can_be_resumed(tmp_path: Path) -> None:
    run, _ = interrupt(tmp_path, signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    assert_complete(resume(tmp_path))


def test_a_killed_fork_server_costs_its_attempt_and_no_technique(tmp_path: Path) -> None:
    run = start("run", "collectives/slow", "--results", tmp_path, "--quiet")
    wait_until(lambda: finished_lines(tmp_path) > 0 or run.poll() is not None, limit_s=90)
    servers = [
        int(line.split()[0])
        for line in processes_of(tmp_path)
        if "paceline.worker.ranks.preloaded" in line and " paceline:" not in line
    ]
    assert len(servers) == 1, processes_of(tmp_path)
    os.kill(servers[0], signal.SIGKILL)
    output, _ = run.communicate(timeout=RUN_LIMIT_S)
    assert run.returncode == EXIT_OK, output
    assert_nothing_left(tmp_path)
    assert_complete(record_of(tmp_path))


def test_ctrl_c_keeps_what_finished_and_says_how_to_go_on(tmp_path: Path) -> None:
    run, output = interrupt(tmp_path, signal.SIGINT)
    assert run.returncode == EXIT_INFRASTRUCTURE
    (job,) = (tmp_path / "jobs").iterdir()
    assert re.search(r"\d+ results are missing, the rest is kept", output)
    printed = re.search(r"go on with: (paceline run --resume .*)", output)
    assert printed is not None, output
    assert job.name in printed[1]
    pasted = shlex.split(printed[1])[1:]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    ended = subprocess.run(
        command(*pasted, "--quiet"),
        env={**os.environ, **ADDED},
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )
    assert ended.returncode == EXIT_OK, ended.stderr
    assert_complete(record_of(tmp_path))
