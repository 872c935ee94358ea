"""Proofs of what is said of ranks' own losses and gradients: by techniques that diagnose, and by what rides along."""

from __future__ import annotations

import torch

from paceline.families.training.core import oracle
from paceline.families.training.core.seat import make_seat
from paceline.families.training.core.serial import gradient_of, make_serial, take_up
from paceline.families.training.core.setting import Setting
from paceline.families.training.ops.data_parallel.rider import Rider, distance, make_rider
from paceline.worker.session import Block, Case, CaseError, Session

SEEN_TOLERANCE = 1e-4
"""Of a gradient's norm; the same sums on the same rank give the same bits, and means over ranks lie far away."""


def prove_diagnosis(session: Session, block: Block, case: Case, setting: Setting, *, steps: int) -> int:
    """Compare what a technique finds out about ranks with one process that trains on each rank's share.

    Raises:
        CaseError: ``incorrect``: a figure is another.
    """
    seat = make_seat(session, block, case, setting)
    serial = make_serial(session, setting)
    for step in range(steps):
        take_up(serial, seat.weights())
        whole = setting.batch(step, range(setting.batch_size))
        seat.step(whole[session.rank :: session.world_size], step)
        losses, gradients = [], []
        for rank in range(session.world_size):
            own = whole[rank :: session.world_size].to(setting.device).long()
            loss = serial.forward_backward(own)
            assert loss is not None
            losses.append(float(loss))
            gradients.append(torch.cat([gradient_of(p).reshape(-1) for p in serial.model.parameters()]))
        with seat.watch():
            said = seat.diagnosis()
        problem = None
        for name, true in oracle.dispersion(losses, gradients).items():
            if not oracle.agrees(said[name], true):
                problem = f"step {step + 1}: {name} is {true:.4g}, and not {said[name]:.4g}"
        found = session.control.first_problem(problem)
        if found is not None:
            raise CaseError("incorrect", found)
    seat.finish()
    return steps


def prove_caught(session: Session, block: Block, case: Case, setting: Setting, *, steps: int) -> int:
    """Compare gradients that are caught during backward with those of one process on this rank's rows alone.

    Raises:
        CaseError: ``incorrect``: they are others.
    """
    seat = make_seat(session, block, case, setting)
    rider = make_rider(session, block, case, seat)
    if rider is None or not rider.caught:
        return 0
    serial = make_serial(session, setting)
    parameters = list(serial.model.parameters())
    own = Rider(parameters, rider.seed)
    for step in range(steps):
        take_up(serial, seat.weights())
        rows = setting.batch(step, range(setting.batch_size))[session.rank :: session.world_size]
        rider.listen()
        seat.step(rows, step)
        rider.note(None)
        serial.forward_backward(rows.to(setting.device).long())
        own.note([gradient_of(p) for p in parameters])
        apart = distance(rider.notes[-1], own.notes[-1])
        seen = (
            f"step {step + 1}: gradients that are caught are {apart:.2g} of their norm from this rank's own"
        )
        found = session.control.first_problem(None if apart <= SEEN_TOLERANCE else seen)
        if found is not None:
            raise CaseError("incorrect", found)
    seat.finish()
    return steps
