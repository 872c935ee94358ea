"""Proof of what techniques that diagnose say of ranks' own losses and gradients."""

from __future__ import annotations

import torch

from paceline.families.training.api.own import on_device
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.proofs import oracle
from paceline.families.training.core.proofs.sandbox import make_sandbox
from paceline.families.training.core.proofs.serial import gradient_of, make_serial, take_up
from paceline.worker.ranks.session import Block, Case, CaseError, Session


def prove_diagnosis(session: Session, block: Block, case: Case, setting: Setting, *, steps: int) -> int:
    """Compare what a technique finds out about ranks with one process that trains on each rank's share.

    Raises:
        CaseError: ``incorrect``: a figure is another.
    """
    sandbox = make_sandbox(session, block, case, setting)
    serial = make_serial(session, setting)
    for step in range(steps):
        # Before the step: figures are of the gradients at the weights that the step begins with.
        take_up(serial, sandbox.weights())
        whole = setting.batch(step, range(setting.batch_size))
        sandbox.step(whole[session.rank :: session.world_size], step)
        # One process goes through all ranks' shares: what each rank's own loss and gradient are, without any exchange.
        losses, gradients = [], []
        for rank in range(session.world_size):
            own = on_device(whole[rank :: session.world_size], setting.device)
            loss = serial.forward_backward(own)
            assert loss is not None
            losses.append(float(loss))
            gradients.append(torch.cat([gradient_of(p).reshape(-1) for p in serial.model.parameters()]))
        with sandbox.watch():
            said = sandbox.diagnosis()
        problem = None
        for name, true in oracle.dispersion(losses, gradients).items():
            if not oracle.agrees(said[name], true):
                problem = f"step {step + 1}: {name} is {true:.4g}, and not {said[name]:.4g}"
        found = session.control.first_problem(problem)
        if found is not None:
            raise CaseError("incorrect", found)
    sandbox.finish()
    return steps
