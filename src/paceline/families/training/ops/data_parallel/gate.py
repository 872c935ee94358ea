"""Proofs of data parallelism: gradients that are caught on their way are a rank's own; ranks can leave."""

from __future__ import annotations

from paceline.families.training.api.own import on_device
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.planning.promises import Elastic, Training
from paceline.families.training.core.proofs import gate as core
from paceline.families.training.core.proofs.gate import STEPS, Proved, is_exact
from paceline.families.training.core.proofs.sandbox import make_sandbox
from paceline.families.training.core.proofs.serial import gradient_of, make_serial, take_up
from paceline.families.training.ops.data_parallel.gradient_probe import (
    GradientProbe,
    distance,
    make_gradient_probe,
)
from paceline.worker.ranks.session import Block, Case, CaseError, Session

SEEN_TOLERANCE = 1e-4
"""Of a gradient's norm; the same sums on the same rank give the same bits, and means over ranks lie far away."""


def prove_caught(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Compare gradients that are caught during backward with those of one process on this rank's rows alone.

    Of exact techniques, with ``proof: all``: the others average no gradients in backward.

    Raises:
        CaseError: ``incorrect``: they are others.
    """
    info = session.loaded(case).info
    assert info is not None
    if block.params["proof"] == "brief" or not is_exact(info.promised(Training), info.options, case):
        return 0
    sandbox = make_sandbox(session, block, case, setting)
    gradient_probe = make_gradient_probe(session, block, case, sandbox)
    if gradient_probe is None or not gradient_probe.caught:
        return 0
    serial = make_serial(session, setting)
    parameters = list(serial.model.parameters())
    own = GradientProbe(parameters, gradient_probe.seed)
    for step in range(STEPS):
        take_up(serial, sandbox.weights())
        rows = setting.batch(step, range(setting.batch_size))[session.rank :: session.world_size]
        gradient_probe.listen()
        sandbox.step(rows, step)
        gradient_probe.note(None)
        serial.forward_backward(on_device(rows, setting.device))
        own.note([gradient_of(p) for p in parameters])
        apart = distance(gradient_probe.notes[-1], own.notes[-1])
        seen = (
            f"step {step + 1}: gradients that are caught are {apart:.2g} of their norm from this rank's own"
        )
        found = session.control.first_problem(None if apart <= SEEN_TOLERANCE else seen)
        if found is not None:
            raise CaseError("incorrect", found)
    sandbox.finish()
    return STEPS


def prove(session: Session, block: Block, case: Case, setting: Setting) -> Proved:
    """Prove a technique as all are, once its ranks can leave where one will.

    Raises:
        CaseError: ``unsupported``: they cannot; or see ``core.proofs.gate``.
    """
    info = session.loaded(case).info
    if setting.absence is not None and info is not None and not info.promised(Elastic).elastic:
        raise CaseError("unsupported", "its ranks cannot leave or join")
    return core.prove(session, block, case, setting, more=(prove_caught,))
