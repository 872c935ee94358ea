"""Runs blocks of training that loses peers: their script is played with each technique."""

from __future__ import annotations

from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.churn.scenario import run as run_block

__all__ = ["run_block", "sealed", "sealed_in_time"]
