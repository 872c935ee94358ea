"""The start of fine-tuning: a model trained by one process on the language before it changed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.setting import Setting
from paceline.worker.ranks.session import Session

PEAK_RATE = 0.01
WARMUP_STEPS = 20
BATCH = 16


def pretrained(session: Session, setting: Setting, *, steps: int, data_seed: int) -> tuple[Tensor, ...]:
    """Return weights after some steps of AdamW on the unshifted language, equal on all ranks.

    Rank 0 trains alone and the others take its weights. A bias of the head stays zero: it is what the changed language
    asks for.

    Args:
        session: The rank.
        setting: The point's, without a start.
        steps: Steps of 16 sequences.
        data_seed: What their sequences are drawn from.
    """
    if session.rank == 0:
        found = _train(setting, steps, data_seed)
    else:
        found = [torch.zeros_like(p) for p in setting.model().parameters()]
    vector = torch.cat([w.detach().reshape(-1).cpu() for w in found])
    session.control.sum_in_place(vector)
    pieces = torch.split(vector, [w.numel() for w in found])
    return tuple(piece.view(w.shape) for piece, w in zip(pieces, found, strict=True))


def _train(setting: Setting, steps: int, data_seed: int) -> list[Tensor]:
    language = corpus.markov()
    alone = replace(
        setting, steps=steps, optimizer="adamw", peak_rate=PEAK_RATE, warmup_steps=WARMUP_STEPS, start=None
    )
    task = alone.task(rank=0, world_size=1)
    for name, parameter in task.model.named_parameters():
        parameter.requires_grad_(name != "head_bias")
    optimizer = task.optimizer(p for p in task.model.parameters() if p.requires_grad)
    for step in range(steps):
        drawn = language.train(data_seed, step, range(BATCH), BATCH, setting.context + 1)
        optimizer.zero_grad()
        loss_and_gradients(task.model, torch.from_numpy(drawn).to(setting.device))
        for group in optimizer.param_groups:
            group["lr"] = task.rate(step)
        optimizer.step()
    return [p.detach() for p in task.model.parameters()]
