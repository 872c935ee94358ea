"""What detectors of faults may promise; free of torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Of detectors."""

    names_ranks: bool = True
    """It says who is guilty; False spares everybody the wait for a name."""
