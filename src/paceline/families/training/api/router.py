"""Routes of tokens through a model's experts: those of a run, and a sample from which techniques may learn.

Shape suffixes: P passes, B sequences, T positions, L layers, N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Where every token of every pass goes, and a sample of other tokens' routes from the same chain."""

    experts_PBTL: Tensor
    """Empty when techniques are made: what they know of the run's tokens would be in their placement."""
    profile_NL: Tensor
    """What a technique may learn from before the run."""

    def sample(self) -> Router:
        """Return the sample alone."""
        return replace(self, experts_PBTL=self.experts_PBTL[:0])

    def chosen(self, number: int) -> Tensor:
        """Return the experts of a pass, (B, T, L)."""
        # Modulo: more passes than were drawn go through the same routes again.
        return self.experts_PBTL[number % len(self.experts_PBTL)]
