"""A limit of a control group on processor time is found, told, and part of what a host is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.drivers.collect import _marks
from paceline.drivers.machine import occupation
from paceline.drivers.machine.idleness import Idleness
from paceline.families.collectives.spec import FAMILY
from paceline.records.identity import host_class
from paceline.worker.machine.cpu_quota import Quota, cpu_quota
from paceline.worker.machine.telemetry import Watch

UNLIMITED = ("max 100000", "-1")
IDLE = Idleness(cores=2, load_average=0.0, foreign_cores=0.0, processes=(), devices=(), devices_absent=None)


def group(folder: Path, quota: str, *, version: int, stopped: int = 3) -> None:
    """Make a control group's files as the kernel shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    if version == 2:
        (folder / "cpu.max").write_text(f"{quota}\n")
    else:
        limit, period = quota.split()
        (folder / "cpu.cfs_quota_us").write_text(f"{limit.replace('max', '-1')}\n")
        (folder / "cpu.cfs_period_us").write_text(f"{period}\n")
    (folder / "cpu.stat").write_text(f"nr_periods 10\nnr_throttled {stopped}\nthrottled_usec 5 of many\n")


def found(tmp_path: Path, version: int, path: str = "/outer/inner", shown: str = "/") -> Quota | None:
    place = tmp_path / "cgroup"
    groups, mounts = tmp_path / "membership", tmp_path / "mounts"
    if version == 2:
        groups.write_text(f"0::{path}\n")
        kind = "cgroup2 cgroup2 rw,nsdelegate"
    else:
        groups.write_text(f"7:memory:/other\n4:cpu,cpuacct:{path}\n0::/\n")
        kind = "cgroup cgroup rw,cpu,cpuacct"
    mounts.write_text(
        f"20 1 0:1 / /proc rw - proc proc rw\n30 1 0:26 {shown} {place} rw,nosuid shared:9 - {kind}\n"
    )
    return cpu_quota(groups, mounts)


@pytest.mark.parametrize("version", [1, 2])
def test_the_narrowest_limit_of_a_group_and_those_above_it_counts(version: int, tmp_path: Path) -> None:
    place = tmp_path / "cgroup"
    group(place / "outer" / "inner", "150000 100000", version=version)
    group(place / "outer", "25000 50000", version=version, stopped=8)
    group(place / "beside", "1000 100000", version=version)
    quota = found(tmp_path, version)
    assert quota == Quota(cores=0.5, folder=place / "outer")
    assert quota.stopped() == {"periods": 10, "stopped": 8}


@pytest.mark.parametrize("version", [1, 2])
def test_without_a_limit_there_is_none(version: int, tmp_path: Path) -> None:
    assert found(tmp_path, version) is None
    group(tmp_path / "cgroup" / "outer" / "inner", "max 100000", version=version)
    assert found(tmp_path, version) is None
    assert cpu_quota(tmp_path / "nowhere", tmp_path / "nowhere") is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_sees_its_own_group_as_the_whole(version: int, tmp_path: Path) -> None:
    """Docker mounts the container's own group, and the path names it as the host does, or as /."""
    group(tmp_path / "cgroup", "25000 100000", version=version)
    for path, shown in (("/docker/abc", "/docker/abc"), ("/", "/"), ("/docker/abc", "/")):
        quota = found(tmp_path, version, path, shown)
        assert quota is not None
        assert quota.cores == 0.25


@pytest.mark.parametrize("broken", ["", "fast 100000", "25000", "25000 0"])
def test_files_that_cannot_be_read_are_no_limit(broken: str, tmp_path: Path) -> None:
    group(tmp_path / "cgroup" / "outer" / "inner", "25000 100000", version=2)
    (tmp_path / "cgroup" / "outer" / "inner" / "cpu.max").write_text(broken)
    assert found(tmp_path, 2) is None


def test_a_group_that_does_not_count_its_periods_says_nothing(tmp_path: Path) -> None:
    group(tmp_path / "cgroup" / "outer" / "inner", "25000 100000", version=2)
    (tmp_path / "cgroup" / "outer" / "inner" / "cpu.stat").write_text("usage_usec 7\n")
    quota = found(tmp_path, 2)
    assert quota is not None
    assert quota.stopped() is None


def test_a_limited_host_is_another_class() -> None:
    host = {"cpu": "Some CPU", "usable_cores": 2, "memory_class_gib": 32}
    device = {"kind": "cpu"}
    whole = host_class(host, device)
    assert (
        whole
        == host_class(host | {"quota_cores": None}, device)
        == host_class(host | {"quota_cores": 2.0}, device)
    )
    assert host_class(host | {"quota_cores": 0.25}, device) == "Some, 2 cores (quota 0.25), 32 GiB"


def test_a_run_and_the_doctor_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert IDLE.limit is None
    assert replace(IDLE, quota_cores=2.0).limit is None
    limited = replace(IDLE, quota_cores=0.25)
    assert limited.limit is not None
    assert limited.limit.startswith("a quota leaves this process 0.25 of the time of 2 cores")
    assert limited.disturbances == [], "waiting does not end it"
    said: list[str] = []
    monkeypatch.setattr(occupation, "look", lambda runner: limited)
    facts = occupation.look_around({}, demand_idle=True, wait_s=0.0, say=said.append)
    assert facts["limit"] == limited.limit
    assert len(said) == 1
    assert said[0].startswith(limited.limit)


def readings(*stopped: int | None) -> list[dict[str, Any]]:
    return [{"quota": None if n is None else {"periods": 10 * n, "stopped": n}} for n in stopped]


def test_what_a_quota_stopped_is_marked() -> None:
    watch = Watch(dict, readings(4, 4, 9))
    assert watch.reasons == ["a quota of processor time stopped it in 5 of 50 periods"]
    assert watch.flags == ["throttled"]
    assert Watch(dict, readings(4, 4)).flags == []
    assert Watch(dict, readings(None, None)).flags == []
    latency, sent = FAMILY.metric("latency"), FAMILY.metric("wire_bytes")
    stopped = {"telemetry": watch.facts()}
    assert _marks(stopped, latency) == ["throttled"]
    assert _marks(stopped, sent) == [], "bytes are what they are"
    assert _marks({"telemetry": None}, latency) == _marks({}, latency) == []
