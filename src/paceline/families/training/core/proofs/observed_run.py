"""Runs whose weights are kept: what a technique ships, also after it was saved and taken up again.

Held against each other they show that a run repeats itself, and that a checkpoint forgets nothing.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.proofs import oracle
from paceline.families.training.core.proofs.sandbox import Sandbox, make_sandbox
from paceline.worker.ranks.session import Block, Case, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """What was seen of a run."""

    shipped: list[list[Tensor]]
    """Weights after some of its last steps, one after the other, and after its end."""
    places: list[str]
    """Where each of them was taken."""
    digests: list[str]
    """Of this rank's model where it took each step's gradients, and after the end."""
    round_ends: Sequence[int]
    """Steps with which rounds end, by the replica's own word."""


def observe(
    session: Session,
    block: Block,
    case: Case,
    setting: Setting,
    *,
    kept_from: int,
    saved_after: Collection[int] = (),
) -> ObservedRun:
    """Train all steps of a setting; after some of them a new replica goes on from what the last one saved.

    Weights are kept after each step from one on.
    """
    sandbox = make_sandbox(session, block, case, setting)
    rows = setting.rows(session.rank, session.world_size)
    shipped: list[list[Tensor]] = []
    places: list[str] = []
    digests: list[str] = []
    for step in range(setting.steps):
        sandbox.step(setting.batch(step, rows), step, digests=digests)
        if step in saved_after:
            # Immediately after the step, between two steps of the same run: what
            # a real restart does, without its processes.
            sandbox = _taken_up(session, block, case, setting, sandbox)
        if step >= kept_from:
            shipped.append([w.clone() for w in sandbox.weights()])
            places.append(f"after step {step + 1}")
    sandbox.finish()
    digests.append(sandbox.digest())
    shipped.append([w.clone() for w in sandbox.weights()])
    ends = tuple(sandbox.replica.round_ends())
    return ObservedRun(shipped=shipped, places=[*places, "at the end"], digests=digests, round_ends=ends)


def _taken_up(session: Session, block: Block, case: Case, setting: Setting, sandbox: Sandbox) -> Sandbox:
    """Return a new replica that goes on from a checkpoint of another."""
    with sandbox.watch():
        sandbox.replica.pause()
        state = sandbox.replica.state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    # Through a file's bytes: objects that the state shares with the old replica would hide what was not saved.
    given = torch.load(file, weights_only=True)
    fresh = make_sandbox(session, block, case, setting)
    with fresh.watch():
        fresh.replica.load_state_dict(given)
    return fresh


def difference(
    session: Session, left: ObservedRun, right: ObservedRun, what: str, *, bitwise: bool = True
) -> str | None:
    """Hold two runs against each other wherever both have shipped weights; return what any rank found, on all ranks."""
    problem = None
    for place, ours, theirs in zip(left.places, left.shipped, right.shipped, strict=True):
        if bitwise:
            alike = all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        else:
            alike = oracle.relative_distance(ours, theirs) <= oracle.CLOSE
        if not all(bool(torch.isfinite(w).all()) for w in (*ours, *theirs)):
            problem = "diverged: weights are not finite after a proof"
        elif not alike:
            problem = f"{what} different weights {place}"
        if problem is not None:
            break
    return session.control.first_problem(problem)
