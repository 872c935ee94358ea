"""Runs blocks of pipelines: every rank reads the whole batch, and passes are noted and played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.families.training.api.pipeline.executor import PipelineReplica
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.pipeline_parallel.metrics import METRICS
from paceline.families.training.ops.pipeline_parallel.passes import Passes
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Let every rank read the whole batch."""
    return replace(setting, whole_batch=True)


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Note passes."""
    return (Passes(trial),)


STRATEGY = Strategy(
    metrics=METRICS, prepare=prepare, callbacks=callbacks, some_see_no_loss=True, passes_by=(PipelineReplica,)
)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
