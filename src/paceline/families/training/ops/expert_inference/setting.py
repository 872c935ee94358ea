"""The setting of inference: layers with experts, and routes of tokens that nobody can foresee."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.families.training.api.expert.decoder import ExpertDecoder
from paceline.families.training.api.expert.layer import ExpertLayer
from paceline.families.training.api.replica import Replica, Task
from paceline.families.training.api.router import Router
from paceline.families.training.api.sizes import Size
from paceline.families.training.core.data.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedSetting(Setting):
    """Adds experts, and where tokens go."""

    experts: int
    """Of a layer."""
    router: Router

    def layer(self, size: Size) -> ExpertLayer:
        """Return a layer with experts, one of them for every token."""
        return ExpertLayer(size, num_experts=self.experts, top_k=1, capacity_factor=1.0)

    def told(self, task: Task) -> Task:
        """Add routes to learn from."""
        return replace(task, router=self.router.sample())

    def unlock(self, replica: Replica) -> None:
        """Give the run's routes to what has placed its experts."""
        if isinstance(replica, ExpertDecoder):
            replica.router = self.router

    def priced(self, task: Task) -> Task:
        """Add the run's routes."""
        return replace(task, router=self.router)


def routed(setting: Setting) -> RoutedSetting:
    """Return a setting as what it is."""
    assert isinstance(setting, RoutedSetting)
    return setting
