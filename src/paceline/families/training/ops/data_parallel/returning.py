"""How the harness judges a rank that left and came back: when it has caught up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.api.absence import Absence
from paceline.families.training.core.loop.callback import Callback, Outcome
from paceline.worker.ranks.session import Session

WATCHED = 25
"""Steps before it leaves in which the rank's distance from the mean of all is noted."""
PATIENCE = 200
"""Steps after its return in which it is looked whether it has caught up."""
ROUNDING = 1e-6
"""Relative distance from the mean at which weights count as equal: means of equal numbers are rounded."""


class Return(Callback):
    """Finds out after how many steps a rank that was away is no farther from the others than it used to be.

    Args:
        session: The rank.
        absence: Who is away when.
        weights: Gives the weights that this rank would ship; it is called on all ranks.
    """

    def __init__(self, session: Session, absence: Absence, weights: Callable[[], list[Tensor]]) -> None:
        self.session, self.absence, self.weights = session, absence, weights
        self.usual = 0.0
        """Its largest distance from the mean of all before it left."""
        self.steps: int | None = None
        """Steps since its return after which it was back; None while it is not."""

    def look(self, step: int | None) -> None:
        """Look at the weights after a step, where they matter."""
        absence = self.absence
        if step is None:
            return
        if absence.first - WATCHED <= step < absence.first:
            self.usual = max(self.usual, self._distance())
        returned = self.steps is None and absence.last <= step < absence.last + PATIENCE
        if returned and self._distance() <= self.usual + ROUNDING:
            self.steps = step + 1 - absence.last

    def metrics(self, outcome: Outcome) -> dict[str, Any]:
        """Return how long the rank took to catch up; where it did not, that is noted."""
        if self.steps is not None:
            return {"recovery_steps": {"samples": [float(self.steps)]}}
        outcome.absent["recovery_steps"] = "the rank that came back did not catch up"
        return {}

    def _distance(self) -> float:
        """Return the rank's distance from the mean of all, over the mean's norm, on every rank."""
        vector = torch.cat([w.detach().reshape(-1).double().cpu() for w in self.weights()])
        mean = vector.clone()
        self.session.control.sum_in_place(mean)
        mean /= self.session.world_size
        own = float((vector - mean).norm()) / max(float(mean.norm()), 1e-300)
        return self.session.control.gather([[own]])[self.absence.rank][0][0]
