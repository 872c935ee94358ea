"""A rank that fails before its first operation: the reason is told once, wherever a person looks, by every way to run.

Real ranks of a machine that lacks something. Engines of exported jobs are broken on purpose; the rest is as it ships.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import paceline_commands
import pytest
from measured import record_of

from paceline.analysis.failures import Failure, grouped
from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK, PrerequisiteError
from paceline.drivers.machine.state import STATE_VARIABLE
from paceline.records.format.record_file import content_of
from paceline.records.store.folder import RunRecord, load, read_record, record_paths
from paceline.spec.suites.suite_file import load_suite
from paceline.worker import inprocess
from paceline.worker.communication.group_control import control_over
from paceline.worker.communication.transport import ThreadHub, ThreadTransport
from paceline.worker.ranks.session import CaseError, Session

SUITE = """
suite: collectives/starts
version: 1
family: collectives
description: Nothing of it starts.
workload: {op: all_reduce, payload: gaussian}
baseline: native
techniques: [native, ring]
matrix: {size_bytes: [4KiB], ranks: [2]}
protocol: {launches: LAUNCHES, warmup: none, min_samples: 5, max_samples: 5, kernel_calls: 0}
"""
KERNELS = """
suite: kernels/starts
version: 1
family: kernels
description: Nothing of it starts.
workload: {op: gemm, m: 64, n: 64, k: 64}
baseline: torch-eager
techniques: [torch-eager, split-k]
protocol: {launches: 2}
"""
NO_DEVICE = "PrerequisiteError: no cuda device is visible to torch"
LIMIT_S = 240
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


def paceline(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        paceline_commands.command(*arguments),
        env={**os.environ, **HIDDEN, STATE_VARIABLE: str(folder / "state")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def only_record(store: Path) -> RunRecord:
    (path,) = record_paths(store)
    return read_record(path)


BREAK = '''
"""What goes wrong in each launch, before the ranks know each other or, for the last, right after."""
import ctypes, os, signal, sys, time

def begin(rank, launch):
    if launch == 0 and rank == 0:
        print("opening the fabric", file=sys.stderr)
        print("fabric token: hunter2-hunter2", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if launch == 1:
        import a_module_that_nobody_has
    if launch == 2 and rank == 1:
        print("the fabric has no route", file=sys.stderr, flush=True)
        os.abort()

def joined(rank, launch):
    if launch == 3 and rank == 1:
        try:
            open("/proc/nothing-here")
        except OSError as error:
            raise RuntimeError("the rank could not be set up") from error
'''


def break_engine(job: Path) -> None:
    """Let ranks of an exported job fail at their start; each launch is tried once."""
    worker = job / "engine" / "paceline" / "worker"
    (worker / "breaking.py").write_text(BREAK)
    rank = (worker / "ranks" / "rank.py").read_text()
    begin, joined = "    trace.context(START)\n", "    interface, control_interface = _interfaces()\n"
    assert begin in rank
    assert joined in rank
    rank = rank.replace(begin, f"{begin}    breaking.begin(rank, launch)\n")
    rank = rank.replace(joined, f"    breaking.joined(rank, launch)\n{joined}")
    rank = rank.replace("import time\n", "import time\nfrom paceline.worker import breaking\n", 1)
    (worker / "ranks" / "rank.py").write_text(rank)
    launch = (worker / "launch.py").read_text()
    assert "MAX_START_FAILURES = 2" in launch
    (worker / "launch.py").write_text(launch.replace("MAX_START_FAILURES = 2", "MAX_START_FAILURES = 1"))


@dataclass(frozen=True, kw_only=True)
class Broken:
    """An exported job whose launches all failed, and what was said on the way."""

    launcher: str
    collected: subprocess.CompletedProcess[str]
    record: RunRecord

    def failure(self, launch: int) -> Failure:
        (found,) = grouped(m for m in self.record.measurements if m.launch == launch)
        return found


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Broken:
    folder = tmp_path_factory.mktemp("broken")
    (folder / "starts.yaml").write_text(SUITE.replace("LAUNCHES", "4"))
    job = folder / "job"
    exported = paceline("job", "export", "starts.yaml", "--output", job, folder=folder)
    assert exported.returncode == EXIT_OK, exported.stderr
    break_engine(job)
    environment = {**os.environ, "PYTHON": sys.executable}
    ran = subprocess.run(
        ["sh", str(job / "run.sh")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == EXIT_OK, ran.stderr
    collected = paceline("job", "collect", job, "--results", "store", folder=folder)
    return Broken(launcher=ran.stderr, collected=collected, record=only_record(folder / "store"))


def test_a_rank_that_is_killed_at_its_start_is_told_with_the_signal_and_the_end_of_its_log(
    broken: Broken,
) -> None:
    found = broken.failure(0)
    assert found.text().startswith("infrastructure: collectives/starts native, ring: 2 cases, rank 0: ")
    assert "was killed by signal 9 (SIGKILL) before the first operation" in found.reason
    assert "its log ends: opening the fabric; fabric token: …" in found.reason
    assert b"hunter2" not in content_of(broken.record.path)


def test_a_module_that_is_missing_is_told_for_all_ranks_with_what_installs_it(broken: Broken) -> None:
    found = broken.failure(1)
    assert found.ranks == {0, 1}
    assert found.reason.startswith(
        "ModuleNotFoundError: No module named 'a_module_that_nobody_has'; fix: install it"
    )
    assert "2 cases, 2 ranks" in found.text()


def test_an_abort_of_a_library_is_told_with_what_it_printed(broken: Broken) -> None:
    found = broken.failure(2)
    assert found.ranks == {1}
    assert "was killed by signal 6 (SIGABRT) before the first operation" in found.reason
    assert "the fabric has no route" in found.reason


def test_a_rank_that_loses_its_peer_leaves_the_word_to_the_peer_whose_root_is_told(broken: Broken) -> None:
    found = broken.failure(3)
    assert found.ranks == {1}
    assert found.reason.startswith(
        "FileNotFoundError: [Errno 2] No such file or directory: '/proc/nothing-here'"
    )
    assert "rank 0" not in found.reason


def test_the_record_keeps_the_tracebacks(broken: Broken) -> None:
    for launch, words in ((1, "import a_module_that_nobody_has"), (3, "the rank could not be set up")):
        details = {str(m.detail) for m in broken.record.measurements if m.launch == launch}
        assert len(details) == 1
        assert "Traceback (most recent call last)" in min(details)
        assert words in min(details)
    kept = [e.data for e in broken.record.events if e.kind == "raised" and e.data["launch"] == 1]
    assert {e["rank"] for e in kept} == {0, 1}


def test_the_launcher_of_a_job_and_its_collection_say_each_reason_once(broken: Broken) -> None:
    assert broken.collected.returncode == EXIT_INFRASTRUCTURE
    for words in ("SIGKILL", "No module named 'a_module_that_nobody_has'", "SIGABRT", "/proc/nothing-here"):
        assert broken.launcher.count(words) == 1
        assert broken.collected.stderr.count(words) == 1
    assert "last operation: none yet" not in broken.launcher + broken.collected.stderr


@pytest.fixture(scope="module")
def without_device(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("device")
    (folder / "starts.yaml").write_text(KERNELS)
    ran = paceline(
        "run", "starts.yaml", "--runner", "local-cuda", "--results", "store", "--quiet", folder=folder
    )
    return folder, ran


def test_a_run_without_a_device_says_so_once_for_all_launches_and_cases(
    without_device: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, ran = without_device
    assert ran.returncode == EXIT_INFRASTRUCTURE
    for said in (ran.stdout, ran.stderr):
        assert said.count("no cuda device is visible") == 1
        assert f"2 cases, 2 launches, rank 0: {NO_DEVICE}; fix: paceline doctor" in " ".join(said.split())
        assert "--runner=local-cpu" in said
    assert ran.stdout.count("infrastructure: see below") == 2


def test_the_pages_of_a_run_without_a_device_say_so_once(
    without_device: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = without_device
    made = paceline("site", "build", "--results", "store", "--output", "site", folder=folder)
    assert made.returncode == EXIT_OK, made.stderr
    (run_id,) = {r.run_id for r in load([folder / "store"]).records}
    pages = {p.relative_to(folder / "site"): p.read_text() for p in (folder / "site").rglob("*.html")}
    run = next(text for path, text in pages.items() if path.parts[0] == "runs" and run_id in path.name)
    points = [text for path, text in pages.items() if path.parts[0] == "cases"]
    assert len(points) == 1
    for text in (run, *points):
        assert text.count("no cuda device is visible") == 1


def test_an_interface_that_is_not_there_is_told_with_the_setting_that_names_another(tmp_path: Path) -> None:
    (tmp_path / "starts.yaml").write_text(SUITE.replace("LAUNCHES", "1"))
    (tmp_path / "wrong.yaml").write_text(
        "runner: wrong\ndescription: A wrong interface.\ndriver: local\ndevice: cpu\nbackend: gloo\nmax_ranks: 2\n"
        "env: {PACELINE_CONTROL_INTERFACE: nope0}\n"
    )
    ran = paceline(
        "run", "starts.yaml", "--runner", "wrong.yaml", "--results", "store", "--json", folder=tmp_path
    )
    assert ran.returncode == EXIT_INFRASTRUCTURE, ran.stderr
    (failure,) = json.loads(ran.stdout)["failures"]
    assert (failure["status"], failure["cases"], failure["ranks"]) == ("infrastructure", 2, [0, 1])
    assert "nope0" in failure["reason"]
    assert "GLOO_SOCKET_IFNAME" in failure["reason"]


def test_a_night_without_a_device_says_so_in_its_summary_and_its_junit_file(tmp_path: Path) -> None:
    suites = tmp_path / "suites" / "kernels"
    suites.mkdir(parents=True)
    (suites / "starts.yaml").write_text(KERNELS)
    (tmp_path / "nightly.yaml").write_text(
        "nightly: test\nmeasure:\n  - {suites: [kernels/starts], runners: [local-cuda], launches: 2}\n"
        "results: store\nidle: warn\nwait: 0\nretries: 0\nsite: false\n"
    )
    arguments = ("--config", "nightly.yaml", "--junit", "night.xml", "--summary", "night.md")
    environment = {
        **os.environ,
        **HIDDEN,
        "PACELINE_CONTENT": str(tmp_path),
        STATE_VARIABLE: str(tmp_path / "state"),
    }
    ran = subprocess.run(
        paceline_commands.command("nightly", *arguments),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == EXIT_INFRASTRUCTURE, ran.stderr
    said = f"2 cases, 2 launches, rank 0: {NO_DEVICE}; fix: paceline doctor"
    summary = (tmp_path / "night.md").read_text()
    assert summary.count(NO_DEVICE) == 1
    assert said in summary
    (error,) = ElementTree.parse(tmp_path / "night.xml").getroot().iter("error")
    assert said in error.attrib["message"]
    assert (error.text or "").count(NO_DEVICE) == 1


ONE_CARD = """
from types import SimpleNamespace as _Namespace
import torch as _torch
_torch.accelerator.is_available = lambda: True
_torch.accelerator.current_accelerator = lambda: _torch.device("cuda")
_torch.accelerator.device_count = lambda: 1
_torch.accelerator.set_device_index = lambda index: None
_torch.version = _Namespace(hip=None, cuda="13.0")
"""


def test_more_ranks_than_devices_are_refused_before_the_ranks_meet(tmp_path: Path) -> None:
    (tmp_path / "starts.yaml").write_text(SUITE.replace("LAUNCHES", "2").replace("ranks: [2]", "ranks: [4]"))
    job = tmp_path / "job"
    exported = paceline(
        "job", "export", "starts.yaml", "--runner=local-cuda", "--output", job, folder=tmp_path
    )
    assert exported.returncode == EXIT_OK, exported.stderr
    device = job / "engine" / "paceline" / "worker" / "machine" / "device.py"
    device.write_text(device.read_text() + ONE_CARD)
    ran = subprocess.run(
        ["sh", str(job / "run.sh")],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == EXIT_OK, ran.stderr
    collected = paceline("job", "collect", job, "--results", "store", folder=tmp_path)
    assert collected.returncode == EXIT_INFRASTRUCTURE
    found = only_record(tmp_path / "store").measurements
    assert {m.status for m in found} == {"infrastructure"}
    (failure,) = grouped(found)
    assert "4 ranks need 4 cuda devices, 1 is here; fix: fewer ranks" in failure.reason
    assert len(list((job / "attempts").glob("*.json"))) == 2  # once a launch: trying again changes nothing


def no_device(*arguments: object, **options: object) -> None:
    raise PrerequisiteError("no cuda device is visible to torch", fix="paceline doctor")


def test_threads_of_the_debug_driver_say_why_they_do_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inprocess, "open_device", no_device)
    (tmp_path / "debug.yaml").write_text(
        "runner: debug\ndescription: x\ndriver: debug\ndevice: cpu\nbackend: gloo\nmax_ranks: 2\n"
    )
    (tmp_path / "starts.yaml").write_text(SUITE.replace("LAUNCHES", "2"))
    found = record_of([load_suite(tmp_path / "starts.yaml")], tmp_path, runner=str(tmp_path / "debug.yaml"))
    (failure,) = grouped(found.measurements)
    assert failure.said == f"2 cases, 2 launches, 2 ranks: {NO_DEVICE}; fix: paceline doctor"
    assert {m.status for m in found.measurements} == {"infrastructure"}


def test_what_one_rank_raises_between_two_stages_keeps_its_traceback() -> None:
    def make() -> None:
        raise LookupError("no ceiling is known")

    session = SimpleNamespace(control=control_over(ThreadTransport(ThreadHub(1), 0)))
    with pytest.raises(CaseError) as found:
        Session.on_all_ranks(session, make)  # type: ignore[arg-type]
    assert found.value.reason == "LookupError: no ceiling is known"
    assert 'raise LookupError("no ceiling is known")' in (found.value.detail or "")
