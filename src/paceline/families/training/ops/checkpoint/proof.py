"""What a technique that checkpoints must prove before it is timed.

It saves after every step of a short run, with background work held up, so that what does not wait for it is found out.
After every second step the folder is copied as a crash would leave it; from copies the harness restores on replicas
with other weights, and compares all bits with the states that it kept itself. A damaged file must lead to the
checkpoint before, and a run that is taken up must end with the bits of one that was not interrupted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from paceline.families.training.api.own import on_device
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.proofs.sandbox import Sandbox, make_sandbox
from paceline.families.training.ops.checkpoint.saving import (
    complain,
    replica_of,
    restored,
    same,
    state_of,
    told,
    too_small,
    watch,
)
from paceline.families.training.ops.checkpoint.setting import SavingSetting, saving
from paceline.worker.ranks.session import Block, Case, CaseError, Session

STEPS = 6
DELAY_S = 0.05
"""How much later background work begins; longer than a step of the proof's model takes on some machines, not on all:
what waits for nothing is torn wherever a step is shorter, and late everywhere."""
States = Mapping[int, tuple[Tensor, ...]]


def prove_checkpoints(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Prove a technique; return the number of states that were compared.

    Raises:
        CaseError: ``incorrect``: what comes back from disk is not what was there, or too little is there.
    """
    own = saving(setting)
    sandbox = make_sandbox(session, block, case, replace(own, delay_s=DELAY_S))
    replica = replica_of(sandbox)
    states: dict[int, tuple[Tensor, ...]] = {}
    copies: list[tuple[int, Path]] = []
    for step in range(STEPS):
        _step(sandbox, setting, step)
        states[step + 1] = state_of(replica)
        with watch(sandbox):
            replica.save(step + 1)
        if step % 2:  # between the others, steps follow as closely as they can
            claimed = _claimed(session, sandbox)
            copies.append((claimed, _copied(session, replica.storage.folder, f"after-{step}")))
    with watch(sandbox):
        replica.before_update()
        replica.drain()
    sandbox.check_left()
    claimed = _claimed(session, sandbox)
    last = _copied(session, replica.storage.folder, "last")
    complain(session, None if claimed == STEPS else f"all is said to be on disk, and step {STEPS} is not")
    for claim, folder in (*copies, (STEPS, last)):
        _compare(session, block, case, own, folder, states, at_least=claim)
    complain(session, too_small(session, replica, replica.storage, STEPS))
    _damage(session, last)
    _compare(session, block, case, own, last, states, at_least=STEPS - 1, at_most=STEPS - 1)
    _goes_on(session, block, case, own, last, states)
    return len(copies) + 2


def _step(sandbox: Sandbox, setting: Setting, step: int) -> None:
    rows = setting.rows(sandbox.session.rank, sandbox.session.world_size)
    replica = replica_of(sandbox)
    with sandbox.watch(proving=True):
        replica.comm.begin_call()
        replica.set_rate(replica.task.rate(step))
        replica.forward_backward(on_device(setting.batch(step, rows), setting.device))
        replica.exchange_gradients(step)
    with watch(sandbox):
        replica.before_update()
    with sandbox.watch(proving=True):
        replica.update(step)
        replica.exchange_parameters(step)


def _claimed(session: Session, sandbox: Sandbox) -> int:
    """Return the last step that all ranks say is on disk; 0 without any."""
    with watch(sandbox):
        own = replica_of(sandbox).completed()
    return int(min(rank[0][0] for rank in session.control.gather([[float(own or 0)]])))


def _copied(session: Session, folder: Path, name: str) -> Path:
    """Copy a folder while others write to it, as a crash would leave it."""
    target = folder.with_name(f"{folder.name}-{name}")
    session.control.barrier()
    if session.rank == 0:
        target.mkdir(parents=True)
        for step in sorted(folder.glob("step-*")):
            for part in step.glob("rank-*"):
                try:
                    shutil.copytree(part, target / step.name / part.name)
                except (OSError, shutil.Error):  # dropped meanwhile, because later ones are complete
                    shutil.rmtree(target / step.name / part.name, ignore_errors=True)
    session.control.barrier()
    return target


def _compare(
    session: Session,
    block: Block,
    case: Case,
    setting: SavingSetting,
    folder: Path,
    states: States,
    *,
    at_least: int,
    at_most: int = STEPS,
) -> None:
    sandbox, found, _ = restored(session, block, case, setting, folder)
    step = found.step or 0
    if not at_least <= step <= at_most:
        text = f"step {max(at_least, 1)} was said to be on disk, and the newest checkpoint is of step {found.step}"
        raise CaseError(found.status, told(text, found), found.detail())
    problem = None
    if step and not same(state_of(replica_of(sandbox)), states[step]):
        problem = f"the checkpoint of step {step} restores another state than that of the step"
    complain(session, problem)


def _damage(session: Session, folder: Path) -> None:
    """Turn one bit of the newest checkpoint's largest file."""
    session.control.barrier()
    if session.rank == 0:
        part = sorted(folder.glob("step-*"))[-1]
        path = max((p for p in part.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    session.control.barrier()


def _goes_on(
    session: Session, block: Block, case: Case, setting: SavingSetting, folder: Path, states: States
) -> None:
    """Train from a checkpoint to the end of the proof, and compare with the run that was not interrupted."""
    sandbox, found, _ = restored(session, block, case, setting, folder)
    step = found.step
    if step is None:
        raise CaseError("incorrect", f"nothing was on disk after {STEPS} steps that were all saved")
    for number in range(step, STEPS):
        _step(sandbox, setting, number)
    equal = same(state_of(replica_of(sandbox)), states[STEPS])
    complain(session, None if equal else f"taken up at step {step}, training ends with another state")
