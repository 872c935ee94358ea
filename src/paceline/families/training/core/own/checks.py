"""Looks at a user's module and data before any technique does: what could not be trained is told.

All is done on every rank or on none, on a model and batches that no technique meets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from paceline.families.training.api.model import loss_and_gradients, loss_of
from paceline.families.training.api.own import LossError, on_device
from paceline.families.training.core.data.setting import Setting, widened
from paceline.families.training.core.own.data import OwnData, digest_of
from paceline.families.training.core.own.loading import load_named
from paceline.families.training.core.own.setting import OwnSetting, workload_of
from paceline.families.training.core.planning.parameters import OWN_LOSS, OWN_MODEL
from paceline.families.training.core.proofs import oracle
from paceline.worker.ranks.session import Block, CaseError, Session

SAME = 1e-3
"""Relative distance of gradients of two passes over one batch, on a device that does not repeat itself bit by bit."""


def own_data(params: Mapping[str, Any]) -> OwnData:
    """Import a point's own data.

    Raises:
        CaseError: ``invalid``: it cannot be imported.
    """
    return OwnData(
        load_named("data", params), world_size=int(params["ranks"]), batch_size=int(params["batch"])
    )


def own_setting(session: Session, block: Block, setting: Setting) -> OwnSetting:
    """Return the setting with the user's module, once module and data were looked at.

    Raises:
        CaseError: ``invalid``, on all ranks: they cannot be trained.
    """
    workload = session.on_all_ranks(lambda: workload_of(block.params, session.world_size))
    own = widened(setting, OwnSetting, own=workload)
    session.on_all_ranks(lambda: _check_batches(own, session, block))
    weights = session.on_all_ranks(lambda: oracle.digest(list(_checked_model(own).parameters())))
    if len(set(session.control.gather_text(weights))) > 1:
        raise CaseError(
            "invalid",
            f"{OWN_MODEL}: {workload.model.text} made other weights on each rank; expected: weights drawn from "
            "torch's generator, or from the argument seed, which are equal on all ranks",
        )
    # Agreed on: a rank alone that draws would train on other numbers than the process beside it.
    draws = [
        text == "draws"
        for text in session.control.gather_text(session.on_all_ranks(lambda: _draws(own, session, block)))
    ]
    return replace(own, own=replace(workload, draws=any(draws)))


def _check_batches(own: OwnSetting, session: Session, block: Block) -> None:
    """Draw all batches of this rank, what is held out, and what all ranks read in the first step."""
    data = own.data
    if data is None:
        return
    held_out = data.held_out(session.draw_seed("held out", block.block), int(block.params["eval_batch"]))
    if len(set(session.control.gather_text(digest_of(held_out)))) > 1:
        data.refuse("holds out other samples on each rank", "the same for the same seed and split")
    data.fingerprint = digest_of(data.whole_batch(own.data_seed, 0))
    if len(set(session.control.gather_text(data.fingerprint))) > 1:
        data.refuse(
            "gave a rank's batch otherwise when another rank asked for it",
            "the same batches for the same rank, world_size and seed, whoever asks",
        )
    for step in range(own.steps):
        data.rank_batch(own.data_seed, step, session.rank)


def _checked_model(own: OwnSetting) -> nn.Module:
    """Return the user's module, if it has parameters that techniques can train.

    Raises:
        CaseError: ``invalid``.
    """
    module = own.own.made(own.model_seed, own.offered(), own.device)
    model = own.own.model
    named = dict(module.named_parameters())
    if not named:
        model.refuse("returned a module without parameters", "at least one nn.Parameter")
    for name, parameter in named.items():
        if parameter.dtype != torch.float32:
            dtype = str(parameter.dtype).removeprefix("torch.")
            model.refuse(f"has {name} in {dtype}", "float32; dtype: bfloat16 in the suite is mixed precision")
        if not parameter.requires_grad:
            model.refuse(
                f"has {name} frozen", "parameters that are all trained; frozen values can be buffers"
            )
    again = own.own.made(own.model_seed, own.offered(), own.device)
    pairs = zip(named.values(), again.parameters(), strict=False)
    if len(named) != len(list(again.parameters())) or not all(torch.equal(a, b) for a, b in pairs):
        model.refuse(
            "made other weights when it was called again with the same seed",
            "weights drawn from torch's generator, or from the argument seed",
        )
    return module


def _draws(own: OwnSetting, session: Session, block: Block) -> str:
    """Run a step of one rank's batch, and return whether the module draws random numbers in it.

    Raises:
        CaseError: ``invalid``: it fails, or gives no loss of weights, batch and random numbers alone.
    """
    model, key, text = own.model(), OWN_MODEL, own.own.model.text
    if own.data is not None and block.params[OWN_LOSS] is not None:
        key, text = OWN_LOSS, str(block.params[OWN_LOSS])
    batch = on_device(own.batch(0, own.rows(session.rank, session.world_size)), own.device)
    try:
        loss = loss_of(model, batch)
    except LossError as error:
        wanted = "a number as a tensor, or an output with such a 'loss'"
        fix = "; name a loss function: loss: FILE.py:NAME" if own.own.loss is None else ""
        raise CaseError("invalid", f"{key}: {text} returned {error}; expected: {wanted}{fix}") from error
    except Exception as error:
        raise own.own.model.failure(error, "was given its first batch and") from error
    if not math.isfinite(float(loss.detach())):
        raise CaseError(
            "invalid",
            f"{key}: {text} gives {float(loss.detach())} as the first loss; expected: a finite number",
        )
    if not loss.requires_grad:
        raise CaseError(
            "invalid",
            f"{key}: {text} gives a loss without a gradient; expected: one that is computed from parameters",
        )
    first = _gradients(model, batch, own)
    if _same(first, _gradients(model, batch, own), own.device):
        return ""
    drawing = replace(own, own=replace(own.own, draws=True)).model()
    if _same(_gradients(drawing, batch, own), _gradients(drawing, batch, own), own.device):
        return "draws"
    buffers = ", ".join(
        name for name, _ in own.own.made(own.model_seed, own.offered(), own.device).named_buffers()
    )
    own.own.model.refuse(
        "gives other gradients each time for the same weights and batch",
        "a loss of weights, batch and torch's random numbers alone"
        + (f"; its buffers are {buffers}" if buffers else ""),
    )


def _gradients(model: nn.Module, batch: Tensor, own: OwnSetting) -> list[Tensor]:
    """Return the gradients of a pass.

    Raises:
        CaseError: ``invalid``: a parameter has none, or they are not finite.
    """
    model.zero_grad(set_to_none=True)
    try:
        loss_and_gradients(model, batch)
    except Exception as error:
        raise own.own.model.failure(error, "went backward and") from error
    found = []
    for name, parameter in model.named_parameters():
        gradient, short = parameter.grad, name.removeprefix("inner.")
        if gradient is None:
            own.own.model.refuse(
                f"has {short}, which has no part in the loss",
                "parameters that all have; leave it out of the module",
            )
        assert gradient is not None
        if not bool(torch.isfinite(gradient).all()):
            own.own.model.refuse(f"gives {short} a gradient that is not finite", "finite numbers")
        found.append(gradient.clone())
    return found


def _same(left: list[Tensor], right: list[Tensor], device: torch.device) -> bool:
    if device.type == "cpu":
        return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
    return oracle.relative_distance(left, right) <= SAME
