"""What vendors (or, where they are silent, the press) say that devices do, with sources; free of torch.

Rates are dense, in operations and bytes a second, for a single device. A device that is not listed has no datasheet and
no fraction of one: nothing is guessed from its name. A part of a device has its share of the sheet, never the whole.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from paceline.families.datasheet_tables import DATASHEETS, Datasheet

__all__ = ["Datasheet", "datasheet_of"]

_FLOPS_PER_CYCLE = (("avx512f", 64), ("fma", 32))
"""Float32 operations of a core and cycle: two fused multiply-add units of 16 or 8 lanes (Intel, *Optimization Reference
Manual*, server cores; models with one 512-bit unit do half)."""
_SLICE = re.compile(r"\s*\bMIG (?:(?P<compute>\d+)c\.)?(?P<slices>\d+)g\.(?P<memory>\d+)gb\b.*$")
"""The end of a MIG device's name (MIG User Guide, *MIG Device Names*)."""
COMPUTE_SLICES = 7
MEMORY_SLICES = 8
"""Of a whole device in MIG mode: of its multiprocessors, and of its memory and second-level cache."""


def datasheet_of(
    name: str | None, *, kind: str, threads: int = 1, multiprocessors: int | None = None
) -> Datasheet | None:
    """Return a device's datasheet, or None where there is none.

    Args:
        name: As the device's runtime or the kernel reports it.
        kind: ``cpu``, or the accelerator's torch type.
        threads: Cores that a CPU measurement may use.
        multiprocessors: That the runtime reports: fewer than the whole device has in a MIG slice, in a partition of an
            AMD device, or under a limit of MPS.
    """
    if name is None:
        return None
    if kind == "cpu":
        return _cpu(name, threads)
    part = _SLICE.search(name)
    whole = name[: part.start()] if part else name
    sheet = next((sheet for pattern, sheet in DATASHEETS if re.search(pattern, whole)), None)
    if sheet is None:
        return None
    if part:
        return _slice(sheet, part, multiprocessors)
    if multiprocessors and sheet.multiprocessors and multiprocessors < sheet.multiprocessors:
        return _with_multiprocessors(sheet, multiprocessors)
    return sheet


def _slice(sheet: Datasheet, part: re.Match[str], multiprocessors: int | None) -> Datasheet:
    """Return a MIG slice's share: of operations by its multiprocessors, of memory and L2 by its eighths."""
    slices = int(part["compute"] or part["slices"])
    of_operations = slices / COMPUTE_SLICES
    if multiprocessors and sheet.multiprocessors:
        of_operations = multiprocessors / sheet.multiprocessors
    # From the memory: 1g.20gb has two eighths and 3g.40gb four.
    eighths = MEMORY_SLICES * int(part["memory"]) / sheet.memory_gb if sheet.memory_gb else float(slices)
    of_memory = min(max(round(eighths), 1), MEMORY_SLICES) / MEMORY_SLICES
    return replace(
        sheet,
        name=f"{sheet.name}, its share of {part[0].strip()}",
        flops_per_s={k: rate * of_operations for k, rate in sheet.flops_per_s.items()},
        bytes_per_s=None if sheet.bytes_per_s is None else sheet.bytes_per_s * of_memory,
        source=f"{sheet.source}; operations by multiprocessors, memory and L2 by eighths (MIG User Guide)",
        multiprocessors=multiprocessors,
        l2_bytes=None if sheet.l2_bytes is None else int(sheet.l2_bytes * of_memory),
        last_level_bytes=None if sheet.last_level_bytes is None else int(sheet.last_level_bytes * of_memory),
    )


def _with_multiprocessors(sheet: Datasheet, multiprocessors: int) -> Datasheet:
    """Return the share of operations of a part that may use all of the memory and its caches."""
    assert sheet.multiprocessors
    share = multiprocessors / sheet.multiprocessors
    return replace(
        sheet,
        name=f"{sheet.name}, {multiprocessors} of {sheet.multiprocessors} multiprocessors",
        flops_per_s={k: rate * share for k, rate in sheet.flops_per_s.items()},
        source=f"{sheet.source}; operations by multiprocessors",
        multiprocessors=multiprocessors,
    )


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
