"""Runs blocks of data parallelism: ranks may be slow, wrong or away, and their gradients are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.families.training.api.absence import Absence
from paceline.families.training.core import measurement
from paceline.families.training.core.callback import Callback, Trial
from paceline.families.training.core.parameters import NONE
from paceline.families.training.core.sealed import sealed
from paceline.families.training.core.setting import Setting
from paceline.families.training.core.strategy import Strategy
from paceline.families.training.ops.data_parallel.gap import add_gap_closed
from paceline.families.training.ops.data_parallel.gate import prove
from paceline.families.training.ops.data_parallel.gradient_probe import Riding
from paceline.families.training.ops.data_parallel.losses import Losses
from paceline.families.training.ops.data_parallel.metrics import METRICS
from paceline.families.training.ops.data_parallel.returning import Return
from paceline.worker.session import Block, Session

__all__ = ["run_block", "sealed"]


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Say who leaves and comes back."""
    if block.params["absent_rank"] == NONE:
        return setting
    return replace(setting, absence=Absence.of_last(session.world_size, setting.steps))


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Look at losses, at gradients before evaluations, and at a rank that comes back."""
    absence = trial.setting.absence
    back = [Return(trial.session, absence, trial.sandbox.weights)] if absence else []
    return (Losses(trial), *back, Riding(trial))


STRATEGY = Strategy(
    metrics=METRICS, prepare=prepare, prove=prove, callbacks=callbacks, together=add_gap_closed
)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
