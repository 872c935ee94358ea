"""Runs blocks with checkpoints: the state is saved while training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from paceline.families.training.api.checkpointing import library
from paceline.families.training.core.data.setting import Setting, widened
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.proofs import gate
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.checkpoint.metrics import METRICS
from paceline.families.training.ops.checkpoint.proof import prove_checkpoints
from paceline.families.training.ops.checkpoint.saving import CheckpointingCallback
from paceline.families.training.ops.checkpoint.setting import SavingSetting, clear, make_root
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


IMPORTED_EARLY = library
"""Takes long to import, and a technique may not import it inside its fences for the first time."""


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Make a folder for checkpoints."""
    return widened(setting, SavingSetting, root=make_root(session))


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Have checkpoints saved in every second window."""
    return (CheckpointingCallback(trial),)


STRATEGY = Strategy(
    metrics=METRICS,
    prepare=prepare,
    clear=clear,
    prove=partial(gate.prove, more=(prove_checkpoints,)),
    callbacks=callbacks,
)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
