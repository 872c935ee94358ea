"""Ranks and devices: how many devices are counted without torch, and that no two ranks get one in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from paceline.base.errors import PrerequisiteError, UserError
from paceline.drivers.machine import devices
from paceline.drivers.machine.devices import count_devices, on_this_machine
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import RunnerProfile, load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.machine.device import open_device

LISTING = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-0b)
GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-0c)
"""
SLICES = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a)
  MIG 1g.10gb     Device  0: (UUID: MIG-01)
  MIG 1g.10gb     Device  1: (UUID: MIG-02)
"""


def count(
    root: Path, device: str = "cuda", listing: str | None = LISTING, environment: dict[str, str] | None = None
) -> int | None:
    return count_devices(device, environment or {}, root=root, listing=lambda: listing)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, 3),
        ("0,2", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,2", 1),
        ("0,7,1", 1),
        ("GPU-0a,GPU-0b", 2),
        ("MIG-01,MIG-02", 1),
    ],
)
def test_nvidia_s_tool_and_what_its_runtime_may_see_are_counted(
    visible: str | None, expected: int, tmp_path: Path
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert count(tmp_path, environment=environment) == expected


def test_of_a_card_s_slices_a_process_sees_one(tmp_path: Path) -> None:
    assert count(tmp_path, listing=SLICES) == 1


def test_without_the_tool_device_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    assert count(tmp_path, listing=None) is None
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).touch()
    assert count(tmp_path, listing=None) == 2


def test_amd_s_topology_has_processors_beside_devices(tmp_path: Path) -> None:
    assert count(tmp_path, "rocm") is None
    for number, units in enumerate((0, 304, 304, 304)):
        node = tmp_path / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\n")
    assert count(tmp_path, "rocm") == 3
    assert count(tmp_path, "rocm", environment={"HIP_VISIBLE_DEVICES": "1,2"}) == 2
    shown = {"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0"}
    assert count(tmp_path, "rocm", environment=shown) == 1


def test_ascend_s_device_files_are_counted_and_ranges_understood(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in (*(f"davinci{n}" for n in range(8)), "davinci_manager"):
        (tmp_path / "dev" / name).touch()
    assert count(tmp_path, "npu") == 8
    assert count(tmp_path, "npu", environment={"ASCEND_RT_VISIBLE_DEVICES": "0-3,6"}) == 5


def profile_of(text: str, folder: Path) -> RunnerProfile:
    (folder / "place.yaml").write_text(text)
    return load_runner(folder / "place.yaml")


SUITE = """
suite: collectives/devices
version: 1
family: collectives
description: More ranks than devices.
workload: {op: all_reduce, payload: gaussian}
baseline: native
techniques: [native]
matrix: {size_bytes: [4KiB], ranks: [1, 2, 4]}
"""


def test_a_plan_skips_what_the_machine_has_no_devices_for_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    suite = load_suite(tmp_path / "suite.yaml")
    counted: list[int | None] = [2]
    monkeypatch.setattr(devices, "count_devices", lambda *_, **__: counted[0])
    cuda = load_runner(content.find_runner("local-cuda"))

    def planned(profile: RunnerProfile) -> tuple[list[int], set[str]]:
        data = make_plan([suite], on_this_machine(profile), Selection()).data
        return [b["ranks"] for b in data["blocks"]], {s["reason"] for s in data["skipped"]}

    assert planned(cuda) == ([1, 2], {"needs 4 devices, 2 are here"})
    counted[0] = 1
    assert planned(cuda) == ([1], {"needs 2 devices, 1 is here", "needs 4 devices, 1 is here"})
    # Nothing counted, and no device at all, are the rank's to tell: it knows what is missing.
    for unknown in (None, 0):
        counted[0] = unknown
        assert planned(cuda) == ([1, 2, 4], set())
    counted[0] = 1
    assert planned(load_runner(content.find_runner("local-cpu")))[0] == [1, 2, 4]
    elsewhere = "runner: place\ndescription: x\ndriver: slurm\ndevice: cuda\nslurm: {}\n"
    assert planned(profile_of(elsewhere, tmp_path))[0] == [1, 2, 4]
    shared = (
        "runner: place\ndescription: x\ndriver: local\ndevice: cuda\nbackend: gloo\nshare_devices: true\n"
    )
    assert planned(profile_of(shared, tmp_path))[0] == [1, 2, 4]


def test_only_gloo_lets_ranks_share_a_device(tmp_path: Path) -> None:
    for wrong in ("device: cuda\nbackend: nccl", "device: cuda", "device: cpu\nbackend: gloo"):
        with pytest.raises(UserError, match="share an accelerator through gloo alone"):
            profile_of(
                f"runner: place\ndescription: x\ndriver: local\n{wrong}\nshare_devices: true\n", tmp_path
            )


def test_a_profile_that_knows_its_devices_is_the_same_plan_s(tmp_path: Path) -> None:
    cuda = load_runner(content.find_runner("local-cuda"))
    assert replace(cuda, num_devices=1).resolved() == cuda.resolved()


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Let torch see so many CUDA devices; the list takes those that were chosen."""

    def see(number: int) -> list[int]:
        chosen: list[int] = []
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: number)
        monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
        monkeypatch.setattr(torch, "version", SimpleNamespace(hip=None, cuda="13.0"))
        return chosen

    return see


def test_more_ranks_than_devices_are_refused_on_every_rank(cards: Callable[[int], list[int]]) -> None:
    chosen = cards(1)
    for rank in range(4):
        with pytest.raises(PrerequisiteError, match="4 ranks need 4 cuda devices, 1 is here"):
            open_device("cuda", index=rank, num_ranks=4)
    assert chosen == []
    chosen = cards(4)
    for rank in range(4):
        open_device("cuda", index=rank, num_ranks=4)
    assert chosen == [0, 1, 2, 3]


def test_ranks_share_devices_where_the_profile_says_so(cards: Callable[[int], list[int]]) -> None:
    chosen = cards(2)
    for rank in range(4):
        open_device("cuda", index=rank, num_ranks=4, shared=True)
    assert chosen == [0, 1, 0, 1]
