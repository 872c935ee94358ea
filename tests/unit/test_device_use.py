"""What others hold and do on accelerators: of all vendors, on the devices that a run would see, and on no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.drivers.machine import deviceuse
from paceline.drivers.machine.deviceuse import DeviceUse, device_uses, read_npu, read_nvidia, visible
from paceline.drivers.machine.idleness import Idleness, look

GOLDENS = Path(__file__).parent / "goldens"
GIB = 1 << 30
NVIDIA = "0, GPU-aaaa-1, 3, 0\n1, GPU-bbbb-2, 40000, 97\n"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the machine no accelerator and no tool yet."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(deviceuse, "DRM", tmp_path / "drm")
    monkeypatch.setattr(deviceuse, "KFD_NODES", tmp_path / "nodes")
    for vendor in deviceuse.VENDORS:
        for names in vendor.chosen_by:
            for name in names:
                monkeypatch.delenv(name, raising=False)
    return tmp_path


def tool(machine: Path, name: str, text: str) -> None:
    """Install a vendor's tool that prints a text."""
    (machine / f"{name}.txt").write_text(text)
    program = machine / "bin" / name
    program.write_text(
        f"#!/bin/sh\nwhile IFS= read -r line; do echo \"$line\"; done < '{machine}/{name}.txt'\n"
    )
    program.chmod(0o755)


def card(machine: Path, number: int, held: int, *, node: int | None = None, unique: int = 0) -> None:
    """Put an AMD card into sysfs, and among the devices that compute where it is a node of theirs."""
    for name in (f"card{number}", f"renderD{128 + number}"):
        folder = machine / "drm" / name / "device"
        (folder / "drm" / f"card{number}").mkdir(parents=True)
        (folder / "mem_info_vram_used").write_text(f"{held}\n")
        (folder / "gpu_busy_percent").write_text("0\n")
    if node is not None:
        place = machine / "nodes" / str(node)
        place.mkdir(parents=True)
        facts = {"simd_count": 1216, "drm_render_minor": 128 + number, "unique_id": unique}
        (place / "properties").write_text("".join(f"{k} {v}\n" for k, v in facts.items()))


def names(kind: str | None, **environment: str) -> list[str]:
    """Return the names of the devices that are looked at."""
    return [use.name for use in device_uses(kind, environment)[0]]


def test_a_processors_graphics_does_not_hide_the_gpus_beside_it(machine: Path) -> None:
    card(machine, 0, 2 * GIB)
    tool(machine, "nvidia-smi", NVIDIA)
    assert names("cuda") == ["GPU 0", "GPU 1"]
    assert names("rocm") == ["card0"]
    assert names("cpu") == names(None) == ["GPU 0", "GPU 1", "card0"]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, ["GPU 0", "GPU 1"]),
        ("0", ["GPU 0"]),
        ("1,0", ["GPU 1", "GPU 0"]),
        ("GPU-bbbb", ["GPU 1"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["GPU 0"]),
        ("NoDevFiles", []),
        ("MIG-1234", ["GPU 0", "GPU 1"]),
    ],
)
def test_cudas_variable_chooses(value: str | None, seen: list[str], machine: Path) -> None:
    tool(machine, "nvidia-smi", NVIDIA)
    assert names("cuda", **({} if value is None else {"CUDA_VISIBLE_DEVICES": value})) == seen


def test_a_runners_own_variable_counts_and_uuids_enter_no_record(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(machine, "nvidia-smi", NVIDIA)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert any("GPU 1" in text for text in look({"device": "cuda"}, 0.01).disturbances)
    quiet = look({"device": "cuda", "env": {"CUDA_VISIBLE_DEVICES": "0"}}, 0.01)
    assert not any("GPU" in text for text in quiet.disturbances)
    assert list(quiet.facts()["devices"]) == [{"name": "GPU 0", "memory_bytes": 3 << 20, "busy": 0.0}]


def test_rocms_devices_are_those_that_compute_in_their_order(machine: Path) -> None:
    card(machine, 0, GIB // 2)
    card(machine, 10, 5 * GIB, node=1, unique=0xAB)
    card(machine, 2, 0, node=2, unique=0xCD)
    (machine / "nodes" / "0").mkdir()
    (machine / "nodes" / "0" / "properties").write_text("simd_count 0\ncpu_cores_count 96\n")
    assert names("rocm") == ["card10", "card2"]
    assert names("rocm", ROCR_VISIBLE_DEVICES="GPU-00000000000000cd") == ["card2"]
    assert names("rocm", ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="0") == ["card2"]
    assert names("rocm", CUDA_VISIBLE_DEVICES="1") == ["card2"], "HIP takes it for its own"
    assert device_uses("rocm", {})[0][0].memory_bytes == 5 * GIB


def test_cards_are_counted_by_number_where_rocm_is_not_there(machine: Path) -> None:
    for number in (0, 10, 2):
        card(machine, number, 0)
    assert names("rocm") == ["card0", "card2", "card10"]


def test_npu_smi_tells_of_processes_and_not_of_the_drivers_memory(machine: Path) -> None:
    tool(machine, "npu-smi", (GOLDENS / "npu-smi-910b3.txt").read_text())
    first, second = device_uses("npu", {})[0]
    assert (first.name, first.memory_bytes, first.busy) == ("NPU 0", 0, 0.0)
    assert (second.name, second.memory_bytes, second.busy) == ("NPU 1", 49400 << 20, 0.87)
    assert names("npu", ASCEND_RT_VISIBLE_DEVICES="0") == ["NPU 0"]
    assert names("npu", ASCEND_RT_VISIBLE_DEVICES="0-1") == ["NPU 0", "NPU 1"]
    chips = read_npu((GOLDENS / "npu-smi-910c.txt").read_text())
    assert [(use.name, use.busy) for use in chips] == [
        ("NPU 0, chip 0", 0.0),
        ("NPU 0, chip 1", 0.12),
        ("NPU 1, chip 0", 0.0),
    ]
    assert read_npu("nothing here") == []


def test_where_nothing_is_known_it_is_said_why(machine: Path) -> None:
    assert device_uses("cuda", {}) == ([], "nvidia-smi is not there")
    assert device_uses(None, {})[1] == (
        "nvidia-smi is not there; AMD's sysfs is not there; npu-smi is not there"
    )
    tool(machine, "nvidia-smi", NVIDIA)
    assert device_uses("cuda", {"CUDA_VISIBLE_DEVICES": ""}) == ([], "variables hide all devices")
    (machine / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert "nvidia-smi failed" in str(device_uses("cuda", {})[1])


def test_held_memory_of_an_accelerator_disturbs() -> None:
    uses = read_nvidia(NVIDIA + "2, GPU-c, [N/A], [N/A]\ngarbage\n")
    assert uses[1] == DeviceUse(name="GPU 1", memory_bytes=40000 << 20, busy=0.97, uuid="GPU-bbbb-2")
    assert uses[2] == DeviceUse(name="GPU 2", memory_bytes=None, busy=None, uuid="GPU-c")
    assert visible(uses, "GPU-") == [], "a beginning that fits several names none"
    found = Idleness(
        cores=2,
        load_average=9.0,
        foreign_cores=0.0,
        processes=(),
        devices=tuple(uses),
        devices_absent=None,
    )
    assert [line.split(" of ")[-1].split(" is ")[0] for line in found.disturbances] == [
        "GPU 1 are held",
        "GPU 1",
    ]
