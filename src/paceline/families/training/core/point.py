"""Draws what all techniques of a block share: its data, its setting, and weights and data for proofs alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paceline.families.training.api.absence import Absence
from paceline.families.training.api.router import Router
from paceline.families.training.api.sizes import size_of
from paceline.families.training.core import corpus
from paceline.families.training.core.parameters import (
    CHECKPOINT,
    EXPERT_INFERENCE,
    FINE_TUNE,
    REQUIRED,
    WHOLE_BATCH,
)
from paceline.families.training.core.setting import Setting
from paceline.families.training.ops.expert_inference.traces import make_router
from paceline.families.training.ops.fine_tune.pretraining import pretrained
from paceline.worker.session import Block, Case, CaseError, Session


def corpus_of(session: Session, params: Mapping[str, Any]) -> corpus.Corpus:
    """Load the data on all ranks.

    Raises:
        CaseError: ``invalid``, on all ranks: some rank cannot read it, or ranks read different data.
    """
    data, shift = str(params["data"]), float(params.get("shift", 0.0))
    found = session.on_all_ranks(lambda: corpus.markov(shift=shift) if shift else corpus.load(data))
    if len(set(session.control.gather_text(found.fingerprint))) > 1:
        raise CaseError("invalid", f"data: ranks read different text from '{data}'")
    return found


def setting_of(session: Session, block: Block, found: corpus.Corpus) -> Setting:
    """Draw the block's seeds, and make what its operation needs: a folder, a trained model, who leaves."""
    params = block.params
    setting = Setting(
        corpus=found,
        router=_router(session, block),
        whole_batch=params["op"] in WHOLE_BATCH,
        microbatches=int(params["microbatches"]),
        experts=int(params.get("experts", 0)),
        top_k=int(params.get("top_k", 1)),
        capacity=float(params.get("capacity", 1.0)),
        size=size_of(params),
        context=int(params["context"]),
        batch_size=int(params["batch"]),
        steps=int(params["steps"]),
        optimizer=str(params["optimizer"]),
        peak_rate=float(params["learning_rate"]),
        warmup_steps=int(params["warmup_steps"]),
        device=torch.device(session.device.torch_type),
        dtype=str(params["dtype"]),
        compiled=params["mode"] == "compiled",
        model_seed=session.draw_seed("model", block.block),
        data_seed=session.draw_seed("data", block.block),
        shared_seed=session.draw_seed("shared", block.block),
        must_learn=params["learning"] == REQUIRED,
    )
    if params["away"] != "nothing":
        return replace(setting, absence=Absence.of_last(session.world_size, setting.steps))
    if params["op"] == CHECKPOINT:
        # the name holds the owner for doctor --clean, which finds what a killed rank leaves
        made = tempfile.mkdtemp(prefix=f"paceline-checkpoints-{os.getpid()}-") if session.rank == 0 else ""
        return replace(setting, folder=Path(session.control.gather_text(made)[0]))
    if params["op"] != FINE_TUNE:
        return setting
    setting = replace(
        setting,
        tuned=str(params["tuned"]),
        probes=int(params["probes"]),
        probe_distance=float(params["probe_distance"]),
    )
    steps, data_seed = int(params["pretrain_steps"]), session.draw_seed("data before", block.block)
    return replace(setting, start=pretrained(session, setting, steps=steps, data_seed=data_seed))


def _router(session: Session, block: Block) -> Router | None:
    """Draw where tokens go at inference; elsewhere the model's gates decide."""
    params = block.params
    if params["op"] != EXPERT_INFERENCE:
        return None
    return make_router(
        str(params["routes"]),
        layers=size_of(params).layers,
        experts=int(params["experts"]),
        affinity=float(params["affinity"]),
        passes=int(params["steps"]),
        sequences=int(params["batch"]),
        context=int(params["context"]),
        seed=session.draw_seed("routes", block.block),
    )


def for_proofs(session: Session, block: Block, case: Case, setting: Setting) -> Setting:
    """Return the point's setting with weights and data that are drawn for one technique's proofs alone."""
    return replace(
        setting,
        model_seed=session.draw_seed("model of proofs", block.block, case.label),
        data_seed=session.draw_seed("data of proofs", block.block, case.label),
        start=None,
    )
