"""The setting of fine-tuning: which parameters go on, and along how many directions slopes are measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.families.training.api.replica import Task
from paceline.families.training.core.data.setting import Setting

TRAINABLE = {"all": "", "gains": "gain", "bias": "head_bias"}
"""What the names of trained parameters contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSetting(Setting):
    """Adds how slopes are measured."""

    num_perturbations: int
    epsilon: float

    def told(self, task: Task) -> Task:
        """Add how slopes are measured."""
        return replace(task, num_perturbations=self.num_perturbations, epsilon=self.epsilon)
