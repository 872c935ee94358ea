"""Draws what all techniques of a block share: its data, its setting, and weights and data for proofs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from paceline.families.training.api.sizes import size_of
from paceline.families.training.core.data.corpus import Corpus
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.planning.parameters import ACTIVATIONS, RECOMPUTED
from paceline.worker.ranks.session import Block, Case, CaseError, Session


def corpus_of(
    session: Session, params: Mapping[str, Any], load: Callable[[Mapping[str, Any]], Corpus]
) -> Corpus:
    """Load the data on all ranks.

    Raises:
        CaseError: ``invalid``, on all ranks: some rank cannot read it, or ranks read different data.
    """
    found = session.on_all_ranks(lambda: load(params))
    # A path may name different files on different machines; ranks would then train on two languages.
    if len(set(session.control.gather_text(found.fingerprint))) > 1:
        raise CaseError("invalid", f"data: ranks read different text from '{params['data']}'")
    return found


def setting_of(session: Session, block: Block, found: Corpus) -> Setting:
    """Draw the block's seeds."""
    params = block.params
    return Setting(
        corpus=found,
        microbatches=int(params["microbatches"]),
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
        recomputes=params.get(ACTIVATIONS.name) == RECOMPUTED,
        model_seed=session.draw_seed("model", block.block),
        data_seed=session.draw_seed("data", block.block),
        shared_seed=session.draw_seed("shared", block.block),
        require_convergence=bool(params["require_convergence"]),
    )


def for_proofs(session: Session, block: Block, case: Case, setting: Setting) -> Setting:
    """Return the point's setting with weights and data that are drawn for one technique's proofs alone."""
    return replace(
        setting,
        model_seed=session.draw_seed("model of proofs", block.block, case.label),
        data_seed=session.draw_seed("data of proofs", block.block, case.label),
        start=None,
    )
