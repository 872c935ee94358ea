"""Judges inference: what was delivered against one process that reads whole sequences, and moves between ranks.

Shape suffixes: B sequences, T positions, V symbols, P passes, L layers, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.api.expert.decoder import ITEM, ExpertDecoder
from paceline.families.training.api.expert.layer import expert_layers
from paceline.families.training.api.model import Transformer, next_symbol_loss
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.proofs.gate import Proved
from paceline.families.training.core.proofs.sandbox import Sandbox, make_sandbox
from paceline.families.training.ops.expert_inference.setting import routed
from paceline.worker.ranks.session import Block, Case, CaseError, ContractBreachError, Session

PASSES = 3
TOLERANCE = 2e-6
"""Distance of the logits from the reference, relative to their norm."""
LOSS_TOLERANCE = 1e-5


def prove(session: Session, block: Block, case: Case, setting: Setting) -> Proved:
    """Compare the logits of some passes with one process's.

    Raises:
        CaseError: They differ, are missing or come twice; another run gives other bits; or the weights were changed.
    """
    session.begin(block, case.label, "gate")
    found = _delivered(session, block, case, setting, compare=True)
    again = _delivered(session, block, case, setting, compare=False)
    same = all(torch.equal(x, y) for x, y in zip(found, again, strict=True))
    _all_agree(session, None if same else "two runs from one seed deliver different logits")
    return Proved(compared=PASSES, transient_bytes=None)


def _delivered(
    session: Session, block: Block, case: Case, setting: Setting, *, compare: bool
) -> list[Tensor]:
    """Read some passes and return what this rank delivered, zero where it was not here."""
    sandbox = make_sandbox(session, block, case, setting)
    if not isinstance(sandbox.replica, ExpertDecoder):
        raise CaseError("refused", "it is no ExpertDecoder (paceline.families.training.api.expert.decoder)")
    serial = setting.model()
    assert isinstance(serial, Transformer)
    found = []
    for number in range(PASSES):
        batch = setting.batch(number, range(setting.batch_size))
        sandbox.step(batch, number)
        delivered_BTV, times_BT = sandbox.replica.logits_BTV, sandbox.replica.times_BT
        if compare:
            expected_BTV = _reference(setting, serial, batch, number)
            _all_agree(session, _wrong(delivered_BTV, times_BT, expected_BTV, number))
            session.control.sum_in_place(whole := times_BT.cpu().clone())
            once = bool((whole == 1).all())
            _all_agree(session, None if once else f"pass {number + 1}: not every token was delivered once")
        found.append(torch.where(times_BT[..., None] > 0, delivered_BTV, 0.0))
    sandbox.finish()
    initial = setting.model().parameters()
    kept = all(torch.equal(w, p.detach()) for w, p in zip(sandbox.weights(), initial, strict=True))
    _all_agree(session, None if kept else "it changed the weights")
    return found


def _wrong(delivered_BTV: Tensor, times_BT: Tensor, expected_BTV: Tensor, number: int) -> str | None:
    here = times_BT > 0
    apart = (delivered_BTV[here].double() - expected_BTV[here].double()).norm()
    distance = float(apart / max(float(expected_BTV[here].double().norm()), 1e-300))
    if distance <= TOLERANCE:
        return None
    return f"pass {number + 1}: logits are {distance:.2g} of their norm beside one process's"


def _reference(setting: Setting, model: Transformer, batch: Tensor, number: int) -> Tensor:
    """Return the logits of whole sequences in one process, on the routes of a pass."""
    _force(setting, model, number)
    with torch.no_grad():
        found: Tensor = model(batch[:, :-1].to(setting.device).long())
    return found


def _force(setting: Setting, model: Transformer, number: int) -> None:
    chosen_BTL = routed(setting).router.chosen(number).to(setting.device)
    for index, layer in enumerate(expert_layers(model)):
        layer.chosen_GT = chosen_BTL[..., index]


def judge(
    session: Session, case: Case, setting: Setting, trained: Trained, held_out: Tensor
) -> tuple[list[float], bool]:
    """Judge what was read: nothing was trained, and there are no losses.

    Raises:
        CaseError: See ``judge_losses``.
    """
    judge_losses(session, setting, trained.losses)
    return [], True


class Ways(Callback):
    """Counts messages with tokens' rows, and how often tokens change ranks.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self._row_messages = 0.0
        trial.sandbox.replica.comm.counters.long_bytes = ITEM * trial.setting.size.width

    def ended(self) -> None:
        """Take this rank's messages that hold at least a token's row."""
        self._row_messages = float(self.trial.sandbox.replica.comm.counters.long_messages)

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return both."""
        session, setting = self.trial.session, self.trial.setting
        rows = session.control.gather([[self._row_messages]])
        sent = max(rank[0][0] for rank in rows) / setting.steps
        moves = crossings(session, self.trial.sandbox, setting)
        return {"row_messages": {"samples": [sent]}, "cross_rank_moves_per_token": {"samples": [moves]}}


def judge_losses(session: Session, setting: Setting, losses: list[float]) -> None:
    """Compare the loss of every timed step with one process's; each rank computes some of them.

    Args:
        session: The rank.
        setting: The point's.
        losses: This rank's, whose mean over ranks is the step's.

    Raises:
        CaseError: ``incorrect``: they differ.
    """
    rows = session.control.gather([losses])
    model, problem = setting.model(), None
    assert isinstance(model, Transformer)
    for step in range(session.rank, setting.steps, session.world_size):
        _force(setting, model, step)
        batch = setting.batch(step, range(setting.batch_size)).to(setting.device).long()
        with torch.no_grad():
            expected = float(next_symbol_loss(model, batch))
        found = math.fsum(rank[0][step] for rank in rows) / session.world_size
        if not abs(found - expected) <= LOSS_TOLERANCE * expected:
            problem = problem or f"step {step + 1}: the loss is {found:.7g}, one process's {expected:.7g}"
    _all_agree(session, problem)


def crossings(session: Session, sandbox: Sandbox, setting: Setting) -> float:
    """Return how often a token's next expert lies on another rank, a mean over tokens, on the routes of the run.

    Where experts lie is read off the weights that ranks hold; a rank that holds no weights of an expert cannot compute
    it, and weights that were sent would show in its bytes.
    """
    model = setting.model()
    numbers = {id(p): number for number, p in enumerate(model.parameters())}
    owned = {number for number, _, _ in sandbox.replica.shares() or ()}
    layers = expert_layers(model)
    own_LE = [[float(numbers[id(e.up)] in owned) for e in layer.experts] for layer in layers]
    ranks_nLE = torch.tensor(session.control.gather(own_LE))
    if not bool((ranks_nLE.sum(dim=0) == 1).all()):
        raise ContractBreachError("some expert has no owner, or several")
    rank_LE = ranks_nLE.argmax(dim=0)
    ranks_PBTL = rank_LE[torch.arange(len(layers)), routed(setting).router.experts_PBTL]
    return float((ranks_PBTL[..., 1:] != ranks_PBTL[..., :-1]).double().sum(dim=-1).mean())


def _all_agree(session: Session, problem: str | None) -> None:
    found = session.control.first_problem(problem)
    if found is not None:
        raise CaseError("incorrect", found)
