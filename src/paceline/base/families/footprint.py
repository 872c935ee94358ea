"""What a case needs of a rank's memory, as far as it can be said before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.base.families.family import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory of one rank, in bytes."""

    parameters: int
    """Of the model; a number, no bytes."""
    state_bytes: float | None
    """Parameters, gradients, the optimiser's state and what is kept beside it; None where a technique states none."""
    activation_bytes: float
    """Most that one forward and backward have made and not yet freed, without gradients of parameters."""

    @property
    def total_bytes(self) -> float | None:
        """Both together; None where the state is not known."""
        return None if self.state_bytes is None else self.state_bytes + self.activation_bytes


class Foretell(Protocol):
    """Says what a case needs, without memory for it."""

    def __call__(self, params: Params, module: str, options: Mapping[str, Any]) -> Footprint | None:
        """Return the footprint of a technique at a fully resolved point; None where nobody knows.

        Args:
            params: Of the point.
            module: Of the technique.
            options: With which it runs.
        """
