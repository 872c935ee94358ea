"""The sheets themselves: one for each device that has been looked up, with the source of its figures.

Rates are dense and in 10¹² a second; where a vendor prints a rate "with sparsity", half of it stands here. The rate of
float32 is that of float32 arithmetic, not of TF32. Products of narrow factors accumulate in float32, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TERA = 1e12
MEBI = 1 << 20
_HALVED = "rates with sparsity halved"
_HOPPER_L2 = "L2: H100 Tensor Core GPU Architecture whitepaper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """Peak rates of one device."""

    name: str
    flops_per_s: Mapping[str, float]
    """By dtype of the operands, accumulation in float32 or wider."""
    bytes_per_s: float | None
    """Of the device's memory; None where it is not published."""
    source: str
    memory_gb: int | None = None
    """As in the name of the device's MIG slices: 10⁹ bytes, rounded."""
    multiprocessors: int | None = None
    """As the runtime counts them; None where runtimes count differently."""
    l2_bytes: int | None = None
    """Of the second level; where dies have one each, of one die."""
    last_level_bytes: int | None = None
    """Of the largest cache and what lies before it; a copy beyond it is memory's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chip:
    """What sheets of one chip have in common."""

    multiprocessors: int | None
    l2_mib: int
    behind_l2_mib: int = 0
    """Of a cache between the second level and memory, with all second levels."""
    fields: tuple[str, ...] = field(
        default=("float64", "float32", "float16", "bfloat16", "float8_e4m3fn"),
    )
    """Dtypes of the rates that a sheet lists."""

    def sheet(
        self, name: str, tera: tuple[float, ...], bytes_per_s: float | None, memory_gb: int, source: str
    ) -> Datasheet:
        """Return a sheet; ``tera``: float64, float32, and the narrow ones, of which 16-bit ones are alike."""
        rates = (*tera[:2], tera[2], *tera[2:])
        return Datasheet(
            name=name,
            flops_per_s={k: rate * TERA for k, rate in zip(self.fields, rates, strict=False)},
            bytes_per_s=bytes_per_s,
            source=source,
            memory_gb=memory_gb,
            multiprocessors=self.multiprocessors,
            l2_bytes=self.l2_mib * MEBI,
            last_level_bytes=(self.behind_l2_mib or self.l2_mib) * MEBI,
        )


_FNUZ = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fnuz")
_A100 = _Chip(multiprocessors=108, l2_mib=40)
_H100 = _Chip(multiprocessors=132, l2_mib=50)
_H100_PCIE = _Chip(multiprocessors=114, l2_mib=50)
# 126 MB: Blackwell Tuning Guide; runtimes tell of slightly more.
_B200 = _Chip(multiprocessors=148, l2_mib=126)
# Eight dies with 4 MiB each, and 256 MiB of Infinity Cache behind them.
_CDNA3 = _Chip(multiprocessors=304, l2_mib=4, behind_l2_mib=288, fields=_FNUZ)
_CDNA4 = _Chip(multiprocessors=256, l2_mib=4, behind_l2_mib=288)
_A100_SOURCE = "NVIDIA A100 Tensor Core GPU datasheet; L2: A100 Architecture whitepaper"
_H100_SOURCE = f"NVIDIA H100 Tensor Core GPU datasheet; {_HALVED}; {_HOPPER_L2}"
_H200_SOURCE = f"NVIDIA H200 Tensor Core GPU datasheet; {_HALVED}; {_HOPPER_L2}"
_BLACKWELL_L2 = "L2: CUDA Blackwell Tuning Guide"
_ROCM = "caches: AMD GPU specifications of the ROCm documentation"
_RTX = "products with accumulation in float32"


def _ascend(name: str, tera: float, bytes_per_s: float | None, l2_mib: int, source: str) -> Datasheet:
    """Return the sheet of an Ascend 910 device; its runtimes count cores in different ways."""
    return Datasheet(
        name=name,
        flops_per_s={"bfloat16": tera * TERA, "float16": tera * TERA},
        bytes_per_s=bytes_per_s,
        source=source,
        l2_bytes=l2_mib * MEBI,
        last_level_bytes=l2_mib * MEBI,
    )


_CANN = "CANN's platform_config of this device: cores × clock × 8192 operations a cycle (16³ multiply-adds), and L2"
_ASCEND_910B = (
    "no public datasheet: half of what is reported for the 910C, which is said to hold two of its dies; "
    "reports of its memory's rate disagree; L2: CANN's platform_config"
)

DATASHEETS: tuple[tuple[str, Datasheet], ...] = (
    (
        r"\bH100 80GB HBM3\b|\bH100 SXM",
        _H100.sheet("NVIDIA H100 SXM", (67, 67, 989, 1979), 3.35 * TERA, 80, _H100_SOURCE),
    ),
    (
        r"\bH100 PCIe\b",
        _H100_PCIE.sheet("NVIDIA H100 PCIe", (51, 51, 756, 1513), 2.0 * TERA, 80, _H100_SOURCE),
    ),
    (
        r"\bH100 NVL\b",
        _H100.sheet("NVIDIA H100 NVL", (60, 60, 835.5, 1670.5), 3.9 * TERA, 94, _H100_SOURCE),
    ),
    (
        r"\bH200 NVL\b",
        _H100.sheet("NVIDIA H200 NVL", (60, 60, 835.5, 1670.5), 4.8 * TERA, 141, _H200_SOURCE),
    ),
    (r"\bH200\b", _H100.sheet("NVIDIA H200 SXM", (67, 67, 989, 1979), 4.8 * TERA, 141, _H200_SOURCE)),
    (
        r"\bGB200\b",
        _B200.sheet(
            "NVIDIA GB200, one of its GPUs",
            (40, 80, 2500, 5000),
            8.0 * TERA,
            186,
            f"NVIDIA GB200 NVL72 datasheet, column of a superchip, halved; {_HALVED}; {_BLACKWELL_L2}",
        ),
    ),
    (
        r"\bB200\b",
        _B200.sheet(
            "NVIDIA B200 (HGX)",
            (37, 75, 2250, 4500),
            7.7 * TERA,
            180,
            f"NVIDIA Blackwell datasheet, column HGX B200; {_HALVED}; {_BLACKWELL_L2}",
        ),
    ),
    (
        r"\bA100-SXM4-80GB\b",
        _A100.sheet("NVIDIA A100 SXM 80GB", (19.5, 19.5, 312), 2.039 * TERA, 80, _A100_SOURCE),
    ),
    (
        r"\bA100-SXM4-40GB\b",
        _A100.sheet("NVIDIA A100 SXM 40GB", (19.5, 19.5, 312), 1.555 * TERA, 40, _A100_SOURCE),
    ),
    (
        r"\bA100 80GB PCIe\b",
        _A100.sheet("NVIDIA A100 PCIe 80GB", (19.5, 19.5, 312), 1.935 * TERA, 80, _A100_SOURCE),
    ),
    (
        r"\bA100-PCIE-40GB\b",
        _A100.sheet("NVIDIA A100 PCIe 40GB", (19.5, 19.5, 312), 1.555 * TERA, 40, _A100_SOURCE),
    ),
    (
        r"\bL40S\b",
        _Chip(multiprocessors=142, l2_mib=96).sheet(
            "NVIDIA L40S",
            (1.43, 91.6, 362, 733),
            0.864 * TERA,
            48,
            "NVIDIA L40S datasheet; float64 and L2: Ada GPU Architecture whitepaper (1/64 of float32; AD102)",
        ),
    ),
    (
        r"\bRTX 4090$",
        _Chip(multiprocessors=128, l2_mib=72).sheet(
            "NVIDIA GeForce RTX 4090",
            (1.29, 82.6, 165.2, 330.3),
            1.008 * TERA,
            24,
            f"NVIDIA Ada GPU Architecture whitepaper, appendix A; {_RTX}",
        ),
    ),
    (
        r"\bRTX 5090$",
        _Chip(multiprocessors=170, l2_mib=96).sheet(
            "NVIDIA GeForce RTX 5090",
            (1.64, 104.8, 209.5, 419),
            1.792 * TERA,
            32,
            f"NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A; {_RTX}",
        ),
    ),
    (
        r"\bMI300X\b",
        _CDNA3.sheet(
            "AMD Instinct MI300X",
            (163.4, 163.4, 1307.4, 2614.9),
            5.3 * TERA,
            192,
            f"AMD Instinct MI300X data sheet, matrix rates; {_ROCM}",
        ),
    ),
    (
        r"\bMI325X\b",
        _CDNA3.sheet(
            "AMD Instinct MI325X",
            (163.4, 163.4, 1307.4, 2614.9),
            6.0 * TERA,
            256,
            f"AMD Instinct MI325X data sheet, matrix rates; {_ROCM}",
        ),
    ),
    (
        r"\bMI355X\b",
        _CDNA4.sheet(
            "AMD Instinct MI355X",
            (78.6, 157.3, 2516.6, 5033.2),
            8.0 * TERA,
            288,
            f"AMD Instinct MI355X data sheet, matrix rates; {_ROCM}",
        ),
    ),
    (
        r"\bAscend\s*910_?B1\b",
        _ascend(
            "Huawei Ascend 910B1", 24 * 8192 * 1.85e9 / TERA, None, 192, f"{_CANN}; memory: none published"
        ),
    ),
    (
        r"\bAscend\s*910_?B2\b",
        _ascend(
            "Huawei Ascend 910B2", 24 * 8192 * 1.8e9 / TERA, None, 192, f"{_CANN}; memory: none published"
        ),
    ),
    (r"\bAscend\s*910_?B4\b", _ascend("Huawei Ascend 910B4", 390, None, 96, _ASCEND_910B)),
    (r"\bAscend\s*910_?B", _ascend("Huawei Ascend 910B", 390, None, 192, _ASCEND_910B)),
    (
        r"\bAscend\s*910_?(C|93)",
        _ascend(
            "Huawei Ascend 910C, one of its two dies",
            390,
            1.6 * TERA,
            192,
            "no public datasheet: half of the 780 Tflop/s and 3.2 TB/s that TechPowerUp reports (21 April 2025); a die "
            "is a device to its runtime; L2: CANN's platform_config",
        ),
    ),
)
"""A pattern for the name that the runtime reports, and the sheet; the first that matches counts."""
