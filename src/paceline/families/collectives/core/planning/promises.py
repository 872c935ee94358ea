"""What techniques of collectives may promise; free of torch. What those of one operation may stands in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal["bounded", "unbiased", "feedback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """Of operations whose results are held against an oracle."""

    exact: bool = True
    """Results are right within the rounding of the dtype; what is not exact is lossy and proves how little it loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses(Exactness):
    """Of operations whose techniques may be lossy: all ranks end with the same, which shows what was lost."""

    error: ErrorKind | None = None
    """What a lossy technique proves: a bound, that the mean of many calls is right, or that later calls make good."""
    max_relative_l2: float | None = None
    """Bound of the relative L2 error of one call, for ``error: bounded``."""
    lossless_on: tuple[Literal["shared-sign", "shared-spike"], ...] = ()
    """Payloads that it carries exactly; a lossy technique names at least one."""
    convergence_calls: int = 64
    """Calls whose mean must come close, for the other kinds of ``error``."""
