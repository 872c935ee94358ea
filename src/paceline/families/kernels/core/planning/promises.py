"""What techniques of kernels may promise and require; free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.base.techniques.requirements import DeviceRequirements, DtypeRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Of every kernel."""

    compiles: bool | Literal["accelerator"] = False
    """It compiles while it is made, always or on accelerators alone, and may write files until then."""


@dataclass(frozen=True, kw_only=True)
class KernelRequirements(DeviceRequirements, DtypeRequirements):
    """Of every kernel: one process runs it."""
