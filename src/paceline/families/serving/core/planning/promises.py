"""What techniques of serving may require; free of torch. What those of one operation promise stands in its folder."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.base.techniques.requirements import DeviceRequirements, DtypeRequirements, RankRequirements


@dataclass(frozen=True, kw_only=True)
class EngineRequirements(DeviceRequirements, DtypeRequirements):
    """Of operations of one process whose model has a dtype."""


@dataclass(frozen=True, kw_only=True)
class GroupRequirements(DeviceRequirements, RankRequirements):
    """Of operations of several ranks whose model's dtype is given."""
