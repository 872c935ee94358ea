"""Runs blocks of fine-tuning: a trained model goes on with a language that has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.corpus import Corpus
from paceline.families.training.core.data.setting import Setting, widened
from paceline.families.training.core.loop import measurement
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.strategy import Strategy, load_data
from paceline.families.training.core.proofs import gate
from paceline.families.training.core.sealed import sealed, sealed_in_time
from paceline.families.training.ops.fine_tune import joining
from paceline.families.training.ops.fine_tune.metrics import METRICS
from paceline.families.training.ops.fine_tune.pretraining import pretrained
from paceline.families.training.ops.fine_tune.setting import TRAINABLE, TuningSetting
from paceline.worker.ranks.session import Block, Session

__all__ = ["run_block", "sealed", "sealed_in_time"]


def load(params: Mapping[str, Any]) -> Corpus:
    """Return the language as it is after its change."""
    shift = float(params["domain_shift"])
    return corpus.markov(shift=shift) if shift else load_data(params)


def prepare(session: Session, block: Block, setting: Setting) -> Setting:
    """Train the model on the language before its change, and choose which parameters go on."""
    params = block.params
    trainable = str(params["trainable"])
    setting = widened(
        replace(setting, head_bias=trainable == "bias", trained_names=TRAINABLE[trainable]),
        TuningSetting,
        num_perturbations=int(params["num_perturbations"]),
        epsilon=float(params["epsilon"]),
    )
    steps, data_seed = int(params["pretrain_steps"]), session.draw_seed("data before", block.block)
    return replace(setting, start=pretrained(session, setting, steps=steps, data_seed=data_seed))


def callbacks(trial: Trial) -> Sequence[Callback]:
    """Keep a log of what probing techniques share."""
    return (joining.follow(trial),)


STRATEGY = Strategy(
    metrics=METRICS,
    load=load,
    prepare=prepare,
    prove=partial(gate.prove, more=(joining.prove,)),
    callbacks=callbacks,
)


def run_block(session: Session, block: Block) -> None:
    """Train all techniques of a block and emit one ``result`` event for each."""
    measurement.run_block(session, block, STRATEGY)
