"""A call counts as faster than its link allows only when the link, measured again and again, stays too slow for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import seeds
import yaml

from paceline.drivers.measure import measure
from paceline.families.collectives.core import ceilings, run
from paceline.records.format.record import Measurement
from paceline.records.store.folder import read_record
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.ranks.session import Session

CALIBRATE = ceilings.calibrate


def measured(folder: Path) -> list[Measurement]:
    """Time an all-reduce of two ranks, which are threads here, so that what they calibrate can be replaced."""
    suite = {
        "suite": "collectives/example",
        "version": 1,
        "family": "collectives",
        "why": "A link that looks slower than it is.",
        "workload": {"op": "all_reduce", "payload": "gaussian"},
        "baseline": "ring",
        "techniques": ["ring"],
        "matrix": {"size_bytes": [4096], "ranks": [2]},
        "protocol": {"launches": 1, "warmup": "none", "max_samples": 4, "min_samples": 4},
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
    return [m for m in read_record(outcome.path).measurements if m.metric.name == "latency"]


@pytest.mark.parametrize(
    ("slow", "status", "calibrations"),
    [(0, "ok", 1), (2, "ok", 3), (99, "invalid", run.CALIBRATIONS)],
    ids=["a quiet machine", "busy at first", "a call that skips its work"],
)
def test_a_link_that_looks_slow_is_measured_again(
    slow: int, status: str, calibrations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {0: 0, 1: 0}

    def calibrate(session: Session, rate: float | None) -> ceilings.LinkCeiling | None:
        made[session.rank] += 1
        found = CALIBRATE(session, rate)
        if made[session.rank] > slow:
            return found
        return ceilings.LinkCeiling(
            round_trip_s=100.0, least_round_trip_s=100.0, bandwidth_bytes_per_s=1.0, burst_bytes=0
        )

    monkeypatch.setattr(ceilings, "calibrate", calibrate)
    (found,) = measured(tmp_path)
    assert found.status == status, found.reason
    assert made == {0: calibrations, 1: calibrations}
    if status == "invalid":
        assert f"that the link allows, calibrated {run.CALIBRATIONS} times" in (found.reason or "")
