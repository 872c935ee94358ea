"""What a step of the engine costs, as techniques ask for it. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Piece = tuple[int, int, bool]
"""Tokens of a request before a step, tokens that it computes, and whether a next token is wanted."""


class StepCosts(Protocol):
    """Whatever says what steps cost."""

    @property
    def kv_bytes_per_token(self) -> int:
        """Return bytes of keys and values of one token."""

    def seconds(self, pieces: Sequence[Piece], seen: int) -> float:
        """Return what a step takes in seconds, alone on its device.

        Args:
            pieces: Of each request of the step.
            seen: Requests that the scheduler sees when it plans the step: those that wait, and those that run.
        """
