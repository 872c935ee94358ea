"""Runs blocks of ranks that share experts: weights may change hands between steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.families.training.api.expert.replica import ExpertReplica
from paceline.families.training.core.data.setting import Setting, widened
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.expert_parallel.metrics import METRICS
from paceline.families.training.ops.expert_parallel.owners import Moves
from paceline.families.training.ops.expert_parallel.probe import Dispatch
from paceline.families.training.ops.expert_parallel.setting import DRAWS, ExpertSetting
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Give layers experts."""
    params = block.params
    return widened(
        replace(setting, proof_draws=DRAWS),
        ExpertSetting,
        experts=int(params["experts"]),
        top_k=int(params["top_k"]),
        capacity=float(params["capacity"]),
    )


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Look at who owns which weights, and time how tokens are put into slots."""
    return (Moves(trial), Dispatch(trial))


STRATEGY = Strategy(metrics=METRICS, prepare=prepare, callbacks=callbacks, passes_by=(ExpertReplica,))


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
