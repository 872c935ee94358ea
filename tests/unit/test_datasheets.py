"""Datasheets: by the names that runtimes report, dense, with a source; a part of a device has its share."""

from __future__ import annotations

import pytest
from kernel_operators import ARITHMETIC, POINTS

from paceline.families.datasheet_tables import DATASHEETS
from paceline.families.datasheets import Datasheet, datasheet_of
from paceline.families.kernels.core.ceilings import describe
from paceline.families.kernels.spec import FAMILY

T = 1e12


def sheet_of(name: str, multiprocessors: int | None = None) -> Datasheet:
    """Return the sheet of an accelerator that is listed."""
    found = datasheet_of(name, kind="cuda", multiprocessors=multiprocessors)
    assert found is not None, name
    return found


@pytest.mark.parametrize(
    ("reported", "name", "bfloat16", "float8", "terabytes", "last_level_mib"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM", 989, 1979, 3.35, 50),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe", 756, 1513, 2.0, 50),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL", 835.5, 1670.5, 3.9, 50),
        ("NVIDIA H200", "NVIDIA H200 SXM", 989, 1979, 4.8, 50),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL", 835.5, 1670.5, 4.8, 50),
        ("NVIDIA B200", "NVIDIA B200 (HGX)", 2250, 4500, 7.7, 126),
        ("NVIDIA GB200", "NVIDIA GB200, one of its GPUs", 2500, 5000, 8.0, 126),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM 80GB", 312, None, 2.039, 40),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 SXM 40GB", 312, None, 1.555, 40),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 PCIe 80GB", 312, None, 1.935, 40),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 PCIe 40GB", 312, None, 1.555, 40),
        ("NVIDIA L40S", "NVIDIA L40S", 362, 733, 0.864, 96),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090", 165.2, 330.3, 1.008, 72),
        ("NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 5090", 209.5, 419, 1.792, 96),
        ("AMD Instinct MI300X", "AMD Instinct MI300X", 1307.4, None, 5.3, 288),
        ("AMD Instinct MI325X", "AMD Instinct MI325X", 1307.4, None, 6.0, 288),
        ("AMD Instinct MI355X", "AMD Instinct MI355X", 2516.6, 5033.2, 8.0, 288),
        ("Ascend910B1", "Huawei Ascend 910B1", 363.7248, None, None, 192),
        ("Ascend910B2", "Huawei Ascend 910B2", 353.8944, None, None, 192),
        ("Ascend910B3", "Huawei Ascend 910B", 390, None, None, 192),
        ("Ascend910B4", "Huawei Ascend 910B4", 390, None, None, 96),
        ("Ascend910_9392", "Huawei Ascend 910C, one of its two dies", 390, None, 1.6, 192),
    ],
)
def test_a_device_is_known_by_the_name_that_its_runtime_reports(
    reported: str,
    name: str,
    bfloat16: float,
    float8: float | None,
    terabytes: float | None,
    last_level_mib: int,
) -> None:
    sheet = sheet_of(reported)
    assert sheet.name == name
    assert sheet.flops_per_s["bfloat16"] == sheet.flops_per_s["float16"] == pytest.approx(bfloat16 * T)
    assert sheet.flops_per_s.get("float8_e4m3fn") == (float8 and float8 * T)
    assert sheet.bytes_per_s == (terabytes and terabytes * T)
    assert sheet.last_level_bytes == last_level_mib << 20
    assert sheet.source


@pytest.mark.parametrize(
    "reported",
    [
        None,
        "NVIDIA GH200 480GB",
        "NVIDIA H100 64GB HBM2",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA L40",
        "AMD MI300A",
        "AMD Instinct MI350X",
    ],
)
def test_another_device_has_no_datasheet_and_no_fraction(reported: str | None) -> None:
    assert datasheet_of(reported, kind="cuda") is None
    defaults = {p.name: p.default for p in FAMILY.parameters_for("gemm")}
    point = {**defaults, **POINTS["gemm"], "op": "gemm", "dtype": "float32"}
    ceiling = {"flops_per_s": 1e11, "bytes_per_s": 1e10, "datasheet": None}
    assert "fraction_of_datasheet" not in describe(ARITHMETIC["gemm"], point, ceiling, 1e-3)


def test_float8_of_cdna3_is_the_type_that_it_has() -> None:
    assert sheet_of("AMD Instinct MI300X").flops_per_s["float8_e4m3fnuz"] == 2614.9 * T
    assert "float8_e4m3fnuz" not in sheet_of("AMD Instinct MI355X").flops_per_s


@pytest.mark.parametrize(
    ("reported", "multiprocessors", "operations", "eighths"),
    [
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, 16 / 132, 1),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", 26, 26 / 132, 2),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", 32, 32 / 132, 2),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 60, 60 / 132, 4),
        ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", 132, 1.0, 8),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", 16, 16 / 132, 4),
        # Without the runtime's number, by the seventh of which slices consist.
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", None, 2 / 7, 2),
        ("NVIDIA H100 NVL MIG 1g.12gb", 16, 16 / 132, 1),
        ("NVIDIA H200 MIG 1g.18gb", 16, 16 / 132, 1),
        ("NVIDIA B200 MIG 1g.23gb", 18, 18 / 148, 1),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 14 / 108, 1),
    ],
)
def test_a_slice_has_its_share_and_never_the_whole_card(
    reported: str, multiprocessors: int | None, operations: float, eighths: int
) -> None:
    whole, part = sheet_of(reported.partition(" MIG")[0]), sheet_of(reported, multiprocessors)
    for dtype, rate in whole.flops_per_s.items():
        assert part.flops_per_s[dtype] == pytest.approx(rate * operations)
    assert whole.bytes_per_s and part.bytes_per_s == pytest.approx(whole.bytes_per_s * eighths / 8)
    assert whole.last_level_bytes and part.last_level_bytes == whole.last_level_bytes * eighths // 8
    assert "MIG" in part.name


def test_a_partition_of_an_amd_device_has_its_share_of_operations() -> None:
    whole, part = sheet_of("AMD Instinct MI300X", 304), sheet_of("AMD Instinct MI300X", 38)
    assert part.flops_per_s["bfloat16"] == pytest.approx(whole.flops_per_s["bfloat16"] / 8)
    assert part.bytes_per_s == whole.bytes_per_s
    assert part.name == "AMD Instinct MI300X, 38 of 304 multiprocessors"
    assert whole.name == "AMD Instinct MI300X"


def test_every_sheet_has_a_source_and_caches_that_grow() -> None:
    for _, sheet in DATASHEETS:
        assert len(sheet.source) > 20
        assert sheet.l2_bytes and sheet.last_level_bytes and sheet.l2_bytes <= sheet.last_level_bytes
        assert min(sheet.flops_per_s.values()) > T
