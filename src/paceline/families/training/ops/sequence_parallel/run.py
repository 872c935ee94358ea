"""Runs blocks of ranks that share every sequence: every rank reads the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.families.training.api.sequence.replica import SequenceReplica
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.sequence_parallel.imbalance import Imbalance
from paceline.families.training.ops.sequence_parallel.metrics import METRICS
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Let every rank read the whole batch."""
    return replace(setting, whole_batch=True)


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Count attention's operations at the end."""
    return (Imbalance(trial),)


STRATEGY = Strategy(metrics=METRICS, prepare=prepare, callbacks=callbacks, passes_by=(SequenceReplica,))


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
