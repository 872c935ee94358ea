"""Runs blocks of ``toy``: all that the family's loop does, and nothing else."""

from __future__ import annotations

from paceline.families.training.ops.toy.metrics import METRICS

from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.sealed import sealed
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed"]

STRATEGY = Strategy(metrics=METRICS)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
