"""What techniques of ``influence`` promise, free of torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Influencing:
    """Of techniques of ``influence``."""

    derivative: bool = False
    """At small rates its estimates are the influence, which is proved: they are its derivative."""
