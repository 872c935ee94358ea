"""Runs blocks of inference: nothing is trained, and what is read is held against one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.families.training.api.expert.decoder import ExpertDecoder
from paceline.families.training.api.router import Router
from paceline.families.training.core.data.setting import Setting, widened
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.expert_inference.metrics import METRICS
from paceline.families.training.ops.expert_inference.reading import Ways, judge, prove
from paceline.families.training.ops.expert_inference.setting import RoutedSetting
from paceline.families.training.ops.expert_inference.traces import make_router
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Give layers experts, draw where tokens go, and let every rank read the whole batch."""
    return widened(
        replace(setting, whole_batch=True),
        RoutedSetting,
        experts=int(block.params["experts"]),
        router=_router(session, block, setting),
    )


def _router(session: Session, block: Block, setting: Setting) -> Router:
    params = block.params
    return make_router(
        str(params["routes"]),
        layers=setting.size.layers,
        experts=int(params["experts"]),
        affinity=float(params["affinity"]),
        passes=setting.steps,
        sequences=setting.batch_size,
        context=setting.context,
        seed=session.draw_seed("routes", block.block),
    )


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Count how often tokens change ranks."""
    return (Ways(trial),)


STRATEGY = Strategy(
    metrics=METRICS,
    prepare=prepare,
    prove=prove,
    callbacks=callbacks,
    losses=judge,
    passes_by=(ExpertDecoder,),
)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
