"""Has a technique save in the family's loop, and measures it from outside: time, bytes on disk, what comes back.

Windows of steps with a checkpoint after every step alternate with windows without: both see the same machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.api.checkpointing.replica import CheckpointingReplica
from paceline.families.training.api.soundness import Found
from paceline.families.training.api.storage import Storage
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.proofs.sandbox import LIBRARIES, Sandbox, make_sandbox
from paceline.families.training.ops.checkpoint.setting import SavingSetting, saving
from paceline.worker.ranks.session import Block, Case, CaseError, Session

_clock_ns = time.perf_counter_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A state that the harness itself has copied."""

    step: int
    tensors: tuple[Tensor, ...]


class CheckpointingCallback(Callback):
    """When a technique saves, and how long training waits for it.

    In every second window it saves after each step.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial, self.sandbox = trial, trial.sandbox
        self.window, self.steps = int(trial.block.params["window"]), trial.setting.steps
        self.stops_before_update = range(self.steps)
        self.replica = replica_of(self.sandbox)
        self.library = type(self.replica).__module__ in LIBRARIES
        self.waited_s: dict[int, float] = {}
        """Seconds for which training waited, by window."""
        self.saves: dict[int, int] = {}
        self.kept: Kept | None = None
        """The last state that was to be saved."""

    def saves_in(self, window: int) -> bool:
        """Tell whether a window has checkpoints."""
        return window % 2 == 1

    def before_update(self, step: int) -> int:
        """Let the technique end what reads the state."""
        if self.kept is not None:
            with self._timed(step):
                self.replica.before_update()
        return 0

    def after_step(self, step: int) -> int:
        """Begin a checkpoint where one is due, end it with its window; return nanoseconds not to count."""
        number, last = step // self.window, (step + 1) % self.window == 0 or step + 1 == self.steps
        if not self.saves_in(number):
            return 0
        with self._timed(step):
            self.replica.save(step + 1)
        self.saves[number] = self.saves.get(number, 0) + 1
        keeping = _clock_ns()
        if last:
            self.kept = Kept(step=step + 1, tensors=state_of(self.replica))
        elif self.kept is None:
            self.kept = Kept(step=step + 1, tensors=())
        keeping = _clock_ns() - keeping
        if last:
            self._drain(step)
        return keeping

    def metrics(self, outcome: Outcome) -> dict[str, Any]:
        """Return what ``judge`` finds."""
        trial = self.trial
        setting, windows = saving(trial.setting), outcome.trained.windows
        return judge(trial.session, trial.block, trial.case, setting, self, windows)

    def _drain(self, step: int) -> None:
        """Wait for the copy, which nothing hides, and for the disk, which is no wait of a step but in the window."""
        with self._timed(step):
            self.replica.before_update()
        with watch(self.sandbox):
            self.replica.drain()

    def _timed(self, step: int) -> _Timed:
        return _Timed(self, step // self.window)


class _Timed:
    """The fences around a technique's call, and a clock."""

    def __init__(self, callback: CheckpointingCallback, window: int) -> None:
        self.callback, self.window = callback, window
        self.fences = watch(callback.sandbox)

    def __enter__(self) -> None:
        self.fences.__enter__()
        self.begin = _clock_ns()

    def __exit__(self, *error: Any) -> None:
        spent = (_clock_ns() - self.begin) * 1e-9
        self.callback.waited_s[self.window] = self.callback.waited_s.get(self.window, 0.0) + spent
        self.fences.__exit__(*error)


def watch(sandbox: Sandbox) -> Any:
    """Return the fences for a technique's calls; a library's own threads and files are let through."""
    return sandbox.session.guard.watch(building=sandbox.library, library=sandbox.library)


def replica_of(sandbox: Sandbox) -> CheckpointingReplica:
    """Return the technique.

    Raises:
        CaseError: ``refused``: it is of another kind.
    """
    if not isinstance(sandbox.replica, CheckpointingReplica):
        raise CaseError(
            "refused", "it is no CheckpointingReplica (paceline.families.training.api.checkpointing.replica)"
        )
    return sandbox.replica


def state_of(replica: CheckpointingReplica) -> tuple[Tensor, ...]:
    """Copy all that decides how training goes on: whole weights, and this rank's state of the optimiser."""
    found = [p.detach() for p in replica.model.parameters()]
    for state in replica.optimizer.state.values():
        found += [state[name] for name in sorted(state)]
    return tuple(t.detach().cpu().clone() for t in found)


def same(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Tell whether two states have the same bits."""
    return len(left) == len(right) and all(map(_equal, left, right))


def _equal(a: Tensor, b: Tensor) -> bool:
    one, other = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return a.dtype == b.dtype and torch.equal(one, other)


def look(session: Session, storage: Storage) -> Found:
    """Return what is on disk, as rank 0 finds it, on all ranks."""
    return Found.parse(session.control.gather_text(storage.look().dump() if session.rank == 0 else "")[0])


def restored(
    session: Session, block: Block, case: Case, setting: SavingSetting, folder: Path
) -> tuple[Sandbox, Found, float]:
    """Take up what is in a folder on a new replica with other weights; return it, what was found, seconds of reading.

    Later checkpoints that a crash has torn are dropped. What is damaged, or could not be read, is set aside: a disk
    that fails once must not cost what it holds.

    Raises:
        CaseError: ``incorrect`` or ``infrastructure``: there are checkpoints, and none that can be taken up. All stay.
    """
    sandbox = make_sandbox(session, block, case, setting.restoring(folder))
    replica = replica_of(sandbox)
    session.control.barrier()
    begin = _clock_ns()
    found = look(session, replica.storage)
    if found.step is None and any(flaw.kind != "torn" for flaw in found.flaws):
        raise CaseError(
            found.status, f"no checkpoint on disk can be taken up: {found.told()}", found.detail()
        )
    session.on_all_ranks(lambda: replica.storage.set_aside(found.harmed if session.rank == 0 else ()))
    replica.storage.forget(found.torn)
    session.control.barrier()
    if found.step is not None:
        step = found.step

        def take_up() -> None:
            with watch(sandbox):
                replica.restore(step)

        session.on_all_ranks(take_up)
    return sandbox, found, (_clock_ns() - begin) * 1e-9


def judge(
    session: Session,
    block: Block,
    case: Case,
    setting: SavingSetting,
    callback: CheckpointingCallback,
    windows: Sequence[list[float]],
) -> dict[str, Any]:
    """Return the metrics of checkpoints, once what is on disk has been found to be what the harness kept.

    Args:
        session: The rank.
        block: The block.
        case: The technique.
        setting: The point's.
        callback: Of the run.
        windows: For each of this rank's windows seconds, and steps at the end of the row.

    Raises:
        CaseError: ``incorrect``: another step or another state came back; ``infrastructure``: a file could not be read.
    """
    storage, kept = callback.replica.storage, callback.kept
    assert kept is not None
    sandbox, found, seconds = restored(session, block, case, setting, storage.folder)
    if found.step != kept.step:
        text = f"after the run the newest checkpoint is of step {found.step}, and not of {kept.step}"
        raise CaseError(found.status, told(text, found), found.detail())
    problem = None
    if not same(state_of(replica_of(sandbox)), kept.tensors):
        problem = f"the checkpoint of step {found.step} restores another state than that of the step"
    complain(session, problem)
    complain(session, too_small(session, callback.replica, storage, kept.step))
    blocking = [callback.waited_s[n] / callback.saves[n] for n in sorted(callback.saves)]
    step_s = [row[0] / row[-1] for row in windows]
    everyone = session.control.gather([blocking, step_s, [seconds, float(storage.num_bytes(kept.step))]])
    worst = [max(rank[1][i] for rank in everyone) for i in range(len(step_s))]
    saving = [s for n, s in enumerate(worst) if n in callback.saves]
    without = [s for n, s in enumerate(worst) if n and n not in callback.saves]
    return {
        "blocking_s": {"samples": [max(rank[0][i] for rank in everyone) for i in range(len(blocking))]},
        "checkpoint_overhead": {"samples": [statistics.median(saving) / statistics.median(without) - 1]},
        "checkpoint_bytes": {"samples": [everyone[0][2][1]]},
        "restore_s": {"samples": [max(rank[2][0] for rank in everyone)]},
    }


def too_small(session: Session, replica: CheckpointingReplica, storage: Storage, step: int) -> str | None:
    """Say so where a checkpoint on disk is smaller than the state that it stands for."""
    state = [replica.share.data, *replica.optimizer.state[replica.share].values()]
    own = float(sum(t.numel() * t.element_size() for t in state))
    needed = sum(rank[0][0] for rank in session.control.gather([[own]]))
    if (found := storage.num_bytes(step)) >= needed:
        return None
    return f"the checkpoint of step {step} has {found} bytes on disk, and its state {needed:.0f}"


def told(problem: str, found: Found) -> str:
    """Add to a problem what is wrong with checkpoints that should have been taken up."""
    return f"{problem}: {found.told()}" if found.flaws else problem


def complain(session: Session, problem: str | None) -> None:
    """Raise on all ranks what is wrong on one."""
    found = session.control.first_problem(problem)
    if found is not None:
        raise CaseError("incorrect", found)
