"""What vendors (or, where they are silent, the press) say that devices do, with sources; free of torch.

Rates are dense, in operations and bytes a second, for a single device. A device that is not listed has no datasheet and
no fraction of one: nothing is guessed from its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TERA = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """Peak rates of one device."""

    name: str
    flops_per_s: Mapping[str, float]
    """By dtype of the operands, accumulation in float32 or wider."""
    bytes_per_s: float | None
    """Of the device's memory; None where it is not published."""
    source: str


_HOPPER = {
    **{"float64": 67 * TERA, "float32": 67 * TERA},
    **{"bfloat16": 989 * TERA, "float16": 989 * TERA, "float8_e4m3fn": 1979 * TERA},
}
_DATASHEETS: tuple[tuple[str, Datasheet], ...] = (
    (
        r"\bH200\b(?!.*NVL)",
        Datasheet(
            name="NVIDIA H200 SXM",
            flops_per_s=_HOPPER,
            bytes_per_s=4.8 * TERA,
            source="NVIDIA H200 Tensor Core GPU datasheet; sparse rates halved",
        ),
    ),
    (
        r"\bH100\b(?!.*(PCIe|NVL))",
        Datasheet(
            name="NVIDIA H100 SXM",
            flops_per_s=_HOPPER,
            bytes_per_s=3.35 * TERA,
            source="NVIDIA H100 Tensor Core GPU datasheet; sparse rates halved",
        ),
    ),
    (
        r"\bB200\b",
        Datasheet(
            name="NVIDIA B200 (HGX)",
            flops_per_s={
                "float64": 37 * TERA,
                "float32": 75 * TERA,
                "bfloat16": 2250 * TERA,
                "float16": 2250 * TERA,
                "float8_e4m3fn": 4500 * TERA,
            },
            bytes_per_s=7.7 * TERA,
            source="NVIDIA Blackwell datasheet, column HGX B200; sparse rates halved",
        ),
    ),
    (
        r"\bMI300X\b",
        Datasheet(
            name="AMD Instinct MI300X",
            flops_per_s={
                "float64": 163.4 * TERA,
                "float32": 163.4 * TERA,
                "bfloat16": 1307.4 * TERA,
                "float16": 1307.4 * TERA,
                "float8_e4m3fn": 2614.9 * TERA,
            },
            bytes_per_s=5.3 * TERA,
            source="AMD Instinct MI300X data sheet, matrix rates",
        ),
    ),
    (
        r"\bAscend\s*910_?B",
        Datasheet(
            name="Huawei Ascend 910B",
            flops_per_s={"bfloat16": 390 * TERA, "float16": 390 * TERA},
            bytes_per_s=None,
            source="no public datasheet: half of what is reported for the 910C, which is said to hold two of its dies; "
            "reports of its memory's rate disagree",
        ),
    ),
    (
        r"\bAscend\s*910_?(C|93)",
        Datasheet(
            name="Huawei Ascend 910C, one of its two dies",
            flops_per_s={"bfloat16": 390 * TERA, "float16": 390 * TERA},
            bytes_per_s=1.6 * TERA,
            source="no public datasheet: half of the 780 Tflop/s and 3.2 TB/s that TechPowerUp reports "
            "(21 April 2025); a die is a device to its runtime",
        ),
    ),
)
"""A pattern for the name that the runtime reports, and the sheet; the first that matches counts."""

_FLOPS_PER_CYCLE = (("avx512f", 64), ("fma", 32))
"""Float32 operations of a core and cycle: two fused multiply-add units of 16 or 8 lanes (Intel, *Optimization Reference
Manual*, server cores; models with one 512-bit unit do half)."""


def datasheet_of(name: str | None, *, kind: str, threads: int = 1) -> Datasheet | None:
    """Return a device's datasheet, or None where there is none.

    Args:
        name: As the device's runtime or the kernel reports it.
        kind: ``cpu``, or the accelerator's torch type.
        threads: Cores that a CPU measurement may use.
    """
    if name is None:
        return None
    if kind == "cpu":
        return _cpu(name, threads)
    return next((sheet for pattern, sheet in _DATASHEETS if re.search(pattern, name)), None)


def _cpu(name: str, threads: int) -> Datasheet | None:
    """Derive a CPU's peak from its vector width and the nominal clock in its name; memory is not in the name."""
    clock = re.search(r"@ ([\d.]+)\s*GHz", name)
    flags = _flags()
    wide = next((flops for flag, flops in _FLOPS_PER_CYCLE if flag in flags), None)
    if clock is None or wide is None or "Intel" not in name:
        return None
    rate = float(clock[1]) * 1e9 * wide * threads
    return Datasheet(
        name=f"{name}, {threads} threads",
        flops_per_s={"float32": rate, "float64": rate / 2},
        bytes_per_s=None,
        source="nominal clock in the processor's name × two vector multiply-add units; it may run above that clock",
    )


def _flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()
