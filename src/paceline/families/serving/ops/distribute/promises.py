"""What techniques of ``distribute`` may promise; free of torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """Of techniques that compute one step on several ranks."""

    replicated: bool = False
    """Every rank holds the whole model and computes whole requests."""
