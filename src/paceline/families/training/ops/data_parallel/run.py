"""Runs blocks of data parallelism: ranks may be slow, wrong or away, and their gradients are looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from paceline.families.training.api.absence import Absence
from paceline.families.training.api.own import handed_on
from paceline.families.training.core.data.corpus import Corpus
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy, all_batches, load_data
from paceline.families.training.core.own.checks import own_data, own_setting
from paceline.families.training.core.own.setting import OwnSetting
from paceline.families.training.core.planning.parameters import NONE, OWN_MODEL, is_own_data
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.data_parallel.gap import add_gap_closed
from paceline.families.training.ops.data_parallel.gate import prove
from paceline.families.training.ops.data_parallel.gradient_probe import Riding
from paceline.families.training.ops.data_parallel.losses import Losses
from paceline.families.training.ops.data_parallel.metrics import METRICS
from paceline.families.training.ops.data_parallel.returning import Return
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


def load(params: Mapping[str, Any]) -> Corpus:
    """Load a point's data, of the family's or of the user's."""
    if is_own_data(str(params["data"])):
        return cast("Corpus", own_data(params))  # asked for text by nobody: its setting gives the batches
    return load_data(params)


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Say who leaves and comes back, and bring the user's own module and data.

    Raises:
        CaseError: ``invalid``: these cannot be trained.
    """
    if block.params[OWN_MODEL] is not None:
        setting = own_setting(session, block, setting)
    if block.params["absent_rank"] == NONE:
        return setting
    return replace(setting, absence=Absence.of_last(session.world_size, setting.steps))


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Look at losses, at gradients before evaluations, and at a rank that comes back."""
    absence = trial.setting.absence
    back = [Return(trial.session, absence, trial.sandbox.weights)] if absence else []
    return (Losses(trial), *back, Riding(trial))


def batches(session: Session, block: Block, setting: Setting) -> Tensor:
    """Draw this rank's sequences, or batches of the user's, of all steps."""
    if not isinstance(setting, OwnSetting) or setting.data is None:
        return all_batches(session, block, setting)
    rows = setting.rows(session.rank, session.world_size)
    return handed_on([setting.batch(step, rows) for step in range(setting.steps)])


STRATEGY = Strategy(
    metrics=METRICS,
    load=load,
    prepare=prepare,
    batches=batches,
    prove=prove,
    callbacks=callbacks,
    together=add_gap_closed,
)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
