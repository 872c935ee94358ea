"""What a technique must prove before it is timed, on draws of its own.

Always: an exact technique holds, after each of a few steps, the weights of one process that trained on the whole batch.
With ``proof: all`` (conformance) also: two runs from one seed end with the same bits; so does a run that was saved
half way and taken up by a new replica; and with the options under which its paper makes it so it equals synchronous
training.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.families.training import oracle
from paceline.families.training.arm import Setting, make_replica, run_step
from paceline.families.training.replica import Replica
from paceline.worker.session import Block, Case, CaseError, Session

STEPS = 3
PROOF_STEPS = 12
PROOF_ROUND = 3
"""Steps of a proof, and of a round in it where the technique has rounds."""


def prove(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Prove a technique; return the number of steps that were compared with the serial reference.

    Raises:
        CaseError: ``incorrect``: it is not what it says; or what the technique raised.
    """
    session.begin(block, case.label, "gate")
    info = session.loaded(case).info
    assert info is not None
    compared = 0
    if info.properties.get("exact"):
        compared = _equals_serial(session, block, case, replace(setting, steps=STEPS), "")
    if block.params["proof"] == "brief":
        return compared
    short = replace(setting, steps=PROOF_STEPS)
    quick = _with_options(case, {"sync_every": PROOF_ROUND}, known=info.options)
    whole = _run(session, block, quick, short, saved_after=None)
    again = _run(session, block, quick, short, saved_after=None)
    bitwise = bool(info.properties.get("bitwise", True))
    _same(session, whole, again, "two runs from one seed end with different weights")
    resumed = _run(session, block, quick, short, saved_after=PROOF_STEPS // 2 - 1)
    text = "a run that was saved and taken up again ends with different weights"
    _same(session, whole, resumed, text, bitwise=bitwise)
    equal: Mapping[str, Any] = info.properties.get("equals_ddp") or {}
    if equal:
        under = replace(short, steps=STEPS, optimizer=str(equal["optimizer"]))
        special = _with_options(case, equal["options"], known=info.options)
        compared += _equals_serial(session, block, special, under, f" with {equal['options']}")
    return compared


def _with_options(case: Case, options: Mapping[str, Any], *, known: Mapping[str, Any]) -> Case:
    return replace(case, options={**case.options, **{k: v for k, v in options.items() if k in known}})


def _equals_serial(session: Session, block: Block, case: Case, setting: Setting, when: str) -> int:
    """Compare every step with one process on the whole batch; return the number of steps."""
    replica = make_replica(session, block, case, setting)
    task = setting.task(rank=0, world_size=1)
    serial = Replica(task, session.comm())
    for step in range(setting.steps):
        whole = setting.batch(step, range(setting.batch_size))
        run_step(session, replica, whole[session.rank :: session.world_size], step)
        serial.set_rate(task.rate(step))
        serial.forward_backward(whole.to(setting.device).long())
        serial.update(step)
        with session.guard.watch(library=replica.library):
            weights = replica.weights()
        distance = oracle.relative_distance(weights, serial.weights())
        problem = None
        if not distance <= oracle.EXACT_TOLERANCE:
            problem = f"step {step + 1}{when}: weights are {distance:.2g} away from those of one process"
        found = session.control.first_problem(problem)
        if found is not None:
            raise CaseError("incorrect", found)
    with session.guard.watch(library=replica.library):
        replica.finish()
    return setting.steps


def _run(
    session: Session, block: Block, case: Case, setting: Setting, *, saved_after: int | None
) -> list[Tensor]:
    """Train all steps of a setting, in two replicas when a step is given after which the first is saved."""
    replica = make_replica(session, block, case, setting)
    rows = range(session.rank, setting.batch_size, session.world_size)
    for step in range(setting.steps):
        run_step(session, replica, setting.batch(step, rows), step)
        if step == saved_after:
            with session.guard.watch(library=replica.library):
                replica.pause()
            file = io.BytesIO()
            torch.save(replica.state_dict(), file)
            file.seek(0)
            replica = make_replica(session, block, case, setting)
            replica.load_state_dict(torch.load(file, weights_only=True))
    with session.guard.watch(library=replica.library):
        replica.finish()
        weights = replica.weights()
    return [w.detach().clone() for w in weights]


def _same(
    session: Session, left: list[Tensor], right: list[Tensor], reason: str, *, bitwise: bool = True
) -> None:
    if bitwise:
        equal = all(torch.equal(a, b) for a, b in zip(left, right, strict=True))
    else:
        equal = oracle.relative_distance(left, right) <= oracle.EXACT_TOLERANCE
    found = session.control.first_problem(None if equal else reason)
    if found is not None:
        raise CaseError("incorrect", found)
