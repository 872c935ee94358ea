"""Nights from end to end, through the command line: a slowdown between two of them, and machines that fail."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import paceline_commands
import psutil
import pytest

from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK, EXIT_REGRESSION
from paceline.drivers.machine import lease
from paceline.drivers.machine.quarantine import quarantined
from paceline.drivers.machine.state import STATE_VARIABLE
from paceline.records.store.folder import load
from paceline.workflows.nightly.config import load_nightly
from paceline.workflows.nightly.night import Night
from paceline.workflows.nightly.outcomes import NightReport
from paceline.workflows.nightly.report import markdown

TECHNIQUE = '''
"""Work of a known duration; a change makes one size of it slower."""

from paceline import technique
from paceline.families.calibration.api.work import FakeDevice


@technique(name="lab/watched", family="calibration", implements=("work",), summary="work")
class Watched:
    """Performs the same work in every call."""

    def __init__(self, device: FakeDevice, stream: str, work_s: float) -> None:
        self._device, self._stream = device, stream
        self._seconds = work_s * (SLOWDOWN if work_s > 0.0015 else 1.0)

    def run(self) -> None:
        """Work once."""
        self._device.work(self._seconds, stream=self._stream)
'''
SUITE = """
suite: calibration/nights
version: 1
family: calibration
description: What a night watches.
workload: {op: work}
baseline: steady
techniques: [steady, lab/watched]
matrix:
  work_s: [1ms, 2ms]
protocol: {launches: 5, warmup: none, min_samples: 12, max_samples: 12, max_seconds: 1}
metrics:
  latency: {margin: 0.05}
"""
NIGHTLY = """
nightly: test
measure:
  - {suites: [calibration/nights], runners: [RUNNER]}
results: store
idle: warn
wait: 0
retries: 0
quarantine: 2
site: false
publish: {folder: public}
"""


class Place:
    """A content folder, a nightly file, and the commands that a person gives."""

    def __init__(self, folder: Path, *, runner: str = "fake") -> None:
        self.folder = folder
        self.num_nights = 0
        self.store = folder / "store"
        self.state = folder / "state"
        self.config = folder / "nightly.yaml"
        self.config.write_text(NIGHTLY.replace("RUNNER", runner))
        suites, techniques = folder / "suites" / "calibration", folder / "baselines" / "calibration"
        suites.mkdir(parents=True)
        techniques.mkdir(parents=True)
        (suites / "nights.yaml").write_text(SUITE)
        self.technique = techniques / "watched.py"
        self.slow_by(1.0)
        self.environment = {
            **os.environ,
            "PACELINE_CONTENT": str(folder),
            STATE_VARIABLE: str(self.state),
        }

    def slow_by(self, factor: float) -> None:
        self.technique.write_text(TECHNIQUE.replace("SLOWDOWN", str(factor)))

    def runner(self, name: str, text: str) -> None:
        (self.folder / "runners").mkdir(exist_ok=True)
        (self.folder / "runners" / f"{name}.yaml").write_text(f"runner: {name}\ndescription: x\n{text}")

    def command(self, *arguments: str) -> list[str]:
        self.num_nights += 1
        return paceline_commands.command("nightly", "--config", self.config, *arguments, draw=self.num_nights)

    def night(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=200,
        )


def facts(ended: subprocess.CompletedProcess[str]) -> Any:
    assert ended.stdout.startswith("{"), ended.stderr
    return json.loads(ended.stdout)


def alarmed(found: Any) -> Sequence[tuple[str, str, str]]:
    return [
        (a["series"][2], a["series"][3], json.loads(a["series"][1])["work_s"])
        for u in found["units"]
        for a in u["alarms"]
    ]


def test_exactly_the_series_that_became_slower_alarms_and_the_site_shows_both_nights(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first = place.night("--json")
    assert first.returncode == EXIT_OK, first.stderr
    assert "first night" in facts(first)["units"][0]["why"]
    place.slow_by(1.1)
    place.config.write_text(place.config.read_text().replace("site: false", "site: true"))
    second = place.night(
        "--json", "--junit", str(tmp_path / "night.xml"), "--summary", str(tmp_path / "summary.md")
    )
    assert second.returncode == EXIT_REGRESSION, second.stderr
    found = facts(second)
    assert alarmed(found) == [("lab/watched", "latency", 0.002)]
    assert "1 suspect is measured again" in second.stderr
    assert ElementTree.parse(tmp_path / "night.xml").getroot().get("failures") == "1"
    assert "**1 alarm.**" in (tmp_path / "summary.md").read_text()
    runs = {r.run.reason: r for r in load([place.store]).records}
    assert runs["confirm"].run.linked_run == found["units"][0]["run_id"] == found["units"][0][
        "confirm_run"
    ] or (runs["confirm"].run.linked_run == found["units"][0]["run_id"])
    pages = "".join(p.read_text() for p in (tmp_path / "public").rglob("*.html"))
    for record in load([place.store]).records:
        if record.run.reason == "nightly":
            assert record.run_id in pages
    assert "alarm: calibration/nights lab/watched" in pages
    assert not list(tmp_path.glob(".public*"))
    place.config.write_text(place.config.read_text().replace("site: true", "site: false"))
    third = place.night("--json")
    assert alarmed(facts(third)) == alarmed(found), "it is compared with the night before the alarm"


@pytest.mark.usefixtures("fixed_plans")
def test_a_suspect_that_a_second_run_does_not_find_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    for name in ("PACELINE_CONTENT", STATE_VARIABLE):
        monkeypatch.setenv(name, place.environment[name])
    # Ranks are threads of this process here: another test of it may have imported techniques of other roots before.
    known = importlib.import_module("paceline.baselines")
    monkeypatch.setattr(known, "__path__", [str(place.technique.parents[1]), *known.__path__])
    for name in [n for n in sys.modules if n.startswith(f"{known.__name__}.calibration")]:
        monkeypatch.delitem(sys.modules, name)

    def say(text: str) -> None:
        """End being slow when the night says that it measures again."""
        if "measured again" in text:
            change(1.0)

    def night() -> NightReport:
        return Night(
            nightly=load_nightly(place.config), store=place.store, load=lambda: load([place.store]), say=say
        ).run()

    def change(factor: float) -> None:
        """Change the technique, which this process would import only once."""
        place.slow_by(factor)
        for name in [n for n in sys.modules if n.endswith("calibration.watched")]:
            del sys.modules[name]

    night()
    change(1.1)
    found = night()
    failed = {m.reason for r in load([place.store]).records for m in r.measurements if m.status != "ok"}
    assert found.exit_code == EXIT_OK, failed
    assert found.alarms == []
    assert [s.series[2] for u in found.units for s in u.unconfirmed] == ["lab/watched"]
    assert "not confirmed" in markdown(found)


def test_a_suite_that_is_longer_than_a_night_is_measured_in_shares_and_each_is_judged_against_its_own_last_night(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    place.config.write_text(place.config.read_text() + "budget: 1ms\n")
    foreseen = place.night("--dry-run")
    assert foreseen.returncode == EXIT_OK, foreseen.stderr
    assert "calibration/nights on fake (standard), 1 of 2 points: no night has tried it" in foreseen.stdout
    assert "it may end after the budget" in foreseen.stdout
    assert "calibration/nights on fake (standard), 1 of 2 points: expected tomorrow night" in foreseen.stdout
    for _ in range(2):
        first, rest = facts(place.night("--json"))["units"]
        assert first["outcome"] == "measured"
        assert "first night" in first["why"]
        assert "expected tomorrow night" in rest["why"]
    place.slow_by(1.1)
    third, fourth = (place.night("--json") for _ in range(2))
    assert third.returncode == EXIT_OK, third.stderr
    assert fourth.returncode == EXIT_REGRESSION, fourth.stderr
    assert alarmed(facts(fourth)) == [("lab/watched", "latency", 0.002)]
    nights = [r for r in load([place.store]).records if r.run.reason == "nightly"]
    assert [r.run.plan["part"] for r in nights if r.run.plan] == [{"num_blocks": 1, "of_blocks": 2}] * 4
    assert [{m.params["work_s"] for m in r.measurements} for r in nights] == [{0.001}, {0.002}] * 2
    assert facts(fourth)["units"][0]["reference"] == nights[1].run_id


def test_a_machine_that_fails_alarms_nothing_and_its_runner_is_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path, runner="frail")
    place.runner("frail", "driver: local\ndevice: fake\nmax_ranks: 1\n")
    place.config.write_text(place.config.read_text().replace("[frail]", "[frail], launches: 1"))
    assert place.night().returncode == EXIT_OK
    for _ in range(2):
        night = subprocess.Popen(
            place.command("--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=place.environment,
        )
        kill_launcher(night.pid)
        said, _complaints = night.communicate(timeout=100)
        found = json.loads(said)
        assert night.returncode == EXIT_INFRASTRUCTURE
        assert alarmed(found) == []
        assert found["units"][0]["outcome"] == "failed"
    standing = quarantined("frail", place.state)
    assert standing is not None
    assert "the launcher was killed by signal 9 (SIGKILL)" in standing.reason
    skipped = place.night()
    assert "paceline doctor --unquarantine frail" in skipped.stderr
    assert skipped.returncode == EXIT_OK


def kill_launcher(controller: int) -> None:
    """Kill the launcher of a night's run as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(controller).children(recursive=True):
            try:
                if "paceline.worker.launch" in " ".join(child.cmdline()):
                    child.send_signal(signal.SIGKILL)
                    return
            except psutil.Error:
                continue
        time.sleep(0.01)
    pytest.fail("no launcher was started")


def test_the_second_of_two_nights_at_once_is_told_who_measures(tmp_path: Path) -> None:
    place = Place(tmp_path, runner="local-cpu")
    place.state.mkdir()
    held = lease.take("paceline nightly --config first.yaml", wait_s=0, folder=place.state)
    try:
        refused = place.night()
        assert refused.returncode == EXIT_INFRASTRUCTURE
        assert (
            f"being measured by 'paceline nightly --config first.yaml' of root (pid {os.getpid()}"
            in refused.stderr
        )
    finally:
        held.release()


def test_two_nights_at_once_measure_one_after_the_other(tmp_path: Path) -> None:
    place = Place(tmp_path, runner="real")
    place.runner("real", "driver: local\ndevice: cpu\nmax_ranks: 2\n")
    text = place.config.read_text().replace("wait: 0", "wait: 3min")
    text = text.replace("calibration/nights", "collectives/all-reduce").replace(
        "runners: [real]", "runners: [real], tier: quick, launches: 1"
    )
    place.config.write_text(text)
    (tmp_path / "suites" / "collectives").mkdir()
    (tmp_path / "suites" / "collectives" / "all-reduce.yaml").write_text(SHORT)
    nights = [
        subprocess.Popen(
            place.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=place.environment
        )
        for _ in range(2)
    ]
    said = [night.communicate(timeout=300)[1] for night in nights]
    assert [night.returncode for night in nights] == [EXIT_OK, EXIT_OK], said
    assert sum("waiting up to" in text for text in said) == 1, said
    spans = sorted(
        (r.run.started, max(e.at for e in r.events))
        for r in load([place.store]).records
        if r.run.reason == "nightly"
    )
    assert len(spans) == 2
    assert spans[0][1] <= spans[1][0]
    machine = [r.run.telemetry["machine"] for r in load([place.store]).records if r.run.telemetry]
    assert [m["lease"] for m in machine] == ["held", "held"]


SHORT = """
suite: collectives/all-reduce
version: 99
family: collectives
description: One point.
workload: {op: all_reduce}
baseline: native
techniques: [native]
matrix: {size_bytes: [4KiB], ranks: [2]}
protocol: {launches: 1, max_seconds: 0.2, kernel_calls: 0}
metrics: {latency: {margin: 10}}
"""
