"""What a probing technique proves: slopes, codes and weights, step by step; and that who joins late can catch up."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from paceline.families.training.api.fine_tuning.probing import Entry, ProbingReplica
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.planning.promises import Slopes
from paceline.families.training.core.proofs.sandbox import Sandbox, make_sandbox
from paceline.families.training.ops.fine_tune.ledger import Codes, Ledger, Plain, difference, entries, entry
from paceline.worker.ranks.session import Block, Case, CaseError, Session

_clock_ns = time.perf_counter_ns

STEPS, JOINS_AT = 8, 4
"""Steps of the proof, and those of them that the last rank misses."""
SLOPE_FLOOR = 1e-4
"""Error of a slope that float32 losses, and codes for nearly nothing, may cause."""
SAMPLED = 8
"""Steps of a run whose slopes are compared; a technique cannot know them."""
FIGURES = ("payload_bytes", "replay_difference", "replay_s", "log_bytes")
NOT_PROBING = "only of techniques that share slopes along random directions, between ranks"


class Proof:
    """Some steps of a probing technique, which the last rank joins half way.

    Until then the last rank takes no part. The replica that joins is made from the initial weights and given the log.

    Args:
        session: The rank.
        block: The block.
        case: The technique.
        setting: The point's, with seeds for proofs alone.
        sandbox: A replica that has not measured anything.
    """

    def __init__(
        self, session: Session, block: Block, case: Case, setting: Setting, sandbox: Sandbox
    ) -> None:
        self.session, self.block, self.case, self.setting = session, block, case, setting
        self.sandbox, self.ledger = sandbox, Ledger(sandbox)
        self.codes = codes_of(session, block, case, setting)
        self.plain = Plain(setting, session.world_size, self.codes)
        self.allowed = allowed_error(session, case)
        self.log: list[Entry] = []

    def run(self) -> int:
        """Take the steps; return their number.

        Raises:
            CaseError: ``incorrect``: slopes, weights, or what the late rank makes of the log are not what they should
                be. ``refused``: it sends other bytes than its codes.
        """
        everyone = range(self.session.world_size)
        early = everyone[:-1] or everyone
        self._meet(early)
        for step in range(STEPS):
            if step == JOINS_AT and len(everyone) > 1:
                self._join()
                self._meet(everyone)
            self._step(step, early if step < JOINS_AT else everyone)
        self.sandbox.finish()
        return STEPS

    def _meet(self, members: Sequence[int]) -> None:
        assert isinstance(self.sandbox.replica, ProbingReplica)
        with self.sandbox.watch():
            self.sandbox.replica.meet(members)

    def _step(self, step: int, members: Sequence[int]) -> None:
        session, problem = self.session, None
        batch = self.setting.batch(step, self.setting.rows(session.rank, session.world_size))
        if session.rank in members:
            with self.ledger.watch():
                self.sandbox.step(batch, step)
            self.ledger.note(step, members)
        tell(session, self.ledger.problem, "refused")
        if session.rank in members:
            problem = wrong_slope(self.plain, self.ledger.rows[-1], batch, step, session.rank, self.allowed)
        tell(session, problem)
        own = self.ledger.rows[-1] if self.ledger.rows else self.ledger.nothing
        self.log.append(entry(session, own, step, members))
        self.plain.follow(self.log[-1])
        weights = self.sandbox.weights()
        tell(session, unlike(weights, self.plain, step) if session.rank in members else None)

    def _join(self) -> None:
        """Give the last rank a new replica that knows the initial weights and the log."""
        session = self.session
        late = session.rank == session.world_size - 1
        fresh = make_sandbox(session, self.block, self.case, self.setting)
        if late:
            self.sandbox, self.ledger = fresh, Ledger(fresh)
        session.on_all_ranks(lambda: replay(fresh, self.log) if late else None)
        apart = difference(self.sandbox.weights(), self.plain.weights)
        text = f"joining after step {JOINS_AT}, it replays the log to weights that differ by {apart:.2g}"
        tell(session, text if late and apart else None)


def prove(session: Session, block: Block, case: Case, setting: Setting) -> int:
    """Hold a technique to its codes if it is a probing one; return the number of steps compared.

    Raises:
        CaseError: See ``Proof.run``.
    """
    sandbox = make_sandbox(session, block, case, setting)
    if not isinstance(sandbox.replica, ProbingReplica):
        return 0
    return Proof(session, block, case, setting, sandbox).run()


def codes_of(session: Session, block: Block, case: Case, setting: Setting) -> Codes:
    """Return what codes stand for, from a replica made for the purpose, before anything was measured.

    Raises:
        CaseError: The technique cannot say it.
    """
    sandbox = make_sandbox(session, block, case, setting)
    order = random.Random(session.draw_seed("codes", block.block, case.label))
    return session.on_all_ranks(lambda: Codes(sandbox, order))


class Tuned(Callback):
    """Measures by how much fine-tuning has lowered the loss."""

    def metrics(self, outcome: Outcome) -> dict[str, Any]:
        """Return it; what only probing techniques have is noted as absent."""
        outcome.absent.update(dict.fromkeys(FIGURES, NOT_PROBING))
        return {"loss_fall": {"samples": [outcome.curve[0] - outcome.curve[-1]]}}


class Followed(Tuned):
    """A probing technique's run, of which a log is kept.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.session, self.block, self.case, self.setting = (
            trial.session,
            trial.block,
            trial.case,
            trial.setting,
        )
        self.batches = trial.batches
        self.codes = codes_of(trial.session, trial.block, trial.case, trial.setting)
        self.ledger = Ledger(trial.sandbox)

    def around_passes(self) -> AbstractContextManager[Any]:
        """Return a context in which no tensor may be kept for backward."""
        return self.ledger.watch()

    def look(self, step: int | None) -> None:
        """Note the codes that ranks shared in a step."""
        if step is not None:
            self.ledger.note(step, range(self.session.world_size))

    def metrics(self, outcome: Outcome) -> dict[str, Any]:
        """Return what both the loss and the log give.

        Raises:
            CaseError: See ``replayed``.
        """
        found = super().metrics(outcome) | self.replayed(outcome.trained)
        for name in found.keys() & set(FIGURES):
            del outcome.absent[name]
        return found

    def replayed(self, trained: Trained) -> dict[str, Any]:
        """Replay the run from its log, by the harness and by a new replica on every rank; return what that gives.

        Raises:
            CaseError: ``incorrect``: some weights are not what the log stands for, or slopes not those of the loss, in
                steps that nobody could know. ``refused``: the log is not what was sent.
        """
        session = self.session
        tell(session, self.ledger.problem, "refused")
        log = entries(session, self.ledger.rows)
        self._compare(log, trained, self.batches)
        fresh = make_sandbox(session, self.block, self.case, self.setting)
        session.control.barrier()
        begin = _clock_ns()
        session.on_all_ranks(lambda: replay(fresh, log))
        spent = (_clock_ns() - begin) * 1e-9
        apart = difference(fresh.weights(), trained.weights[-1])
        tell(
            session, f"a new replica replays the log to weights that differ by {apart:.2g}" if apart else None
        )
        sent = max(trained.sent_to) / len(log) / int(self.block.params["num_perturbations"])
        everyone = session.control.gather([[spent, sent]])
        values = {
            "replay_difference": apart,
            "replay_s": max(rank[0][0] for rank in everyone),
            "log_bytes": float(sum(done.codes.numel() for done in log)),
        }
        if session.world_size > 1:
            values["payload_bytes"] = max(rank[0][1] for rank in everyone)
        return {name: {"samples": [value]} for name, value in values.items()}

    def _compare(self, log: Sequence[Entry], trained: Trained, batches: Tensor) -> None:
        """Compare all copies of the weights with the log, and the slopes of some steps with the loss."""
        session = self.session
        plain = Plain(self.setting, session.world_size, self.codes)
        copies = dict(zip(trained.evaluated, trained.weights, strict=True))
        drawn = random.Random(session.draw_seed("slopes", self.block.block, self.case.label))
        checked = set(drawn.sample(range(len(log)), min(SAMPLED, len(log))))
        allowed = allowed_error(session, self.case)
        for done in log:
            if done.step in checked:
                own = self.ledger.rows[done.step]
                problem = wrong_slope(plain, own, batches[done.step], done.step, session.rank, allowed)
                tell(session, problem)
            plain.follow(done)
            copy = copies.get(done.step + 1)
            if copy is not None:
                tell(session, unlike(copy, plain, done.step))


def follow(trial: Trial) -> Callback:
    """Return the log-keeping of a probing technique; of any other what measures its loss."""
    return Followed(trial) if isinstance(trial.sandbox.replica, ProbingReplica) else Tuned()


def allowed_error(session: Session, case: Case) -> float:
    """Return the relative error of a slope that a technique declares; 1 at most, which leaves the sign."""
    info = session.loaded(case).info
    assert info is not None
    return min(info.promised(Slopes).slope_error, 1.0)


def wrong_slope(
    plain: Plain, codes: Tensor, sequences_BS: Tensor, step: int, rank: int, allowed: float
) -> str | None:
    """Say which of a rank's codes, (probes, bytes of a code), stands for another slope than the loss has, or None."""
    true = plain.slopes(sequences_BS.to(plain.task.device).long(), step, rank)
    for said, slope in zip(plain.codes.decode(codes).tolist(), true, strict=True):
        if not abs(said - slope) <= SLOPE_FLOOR + allowed * abs(slope):
            return f"step {step + 1}: the slope of the loss is {slope:.4g}, and not {said:.4g}"
    return None


def replay(sandbox: Sandbox, log: Sequence[Entry]) -> None:
    """Let a replica take the steps of a log, of which it gets a copy."""
    assert isinstance(sandbox.replica, ProbingReplica)
    with sandbox.watch():
        sandbox.replica.replay([Entry(step=e.step, members=e.members, codes=e.codes.clone()) for e in log])


def unlike(weights: Sequence[Tensor], plain: Plain, step: int) -> str | None:
    """Say how far weights are from what a log stands for, or None when they are that."""
    apart = difference(weights, plain.weights)
    text = f"step {step + 1}: weights differ by {apart:.2g} from what the codes that were sent stand for"
    return text if apart else None


def tell(session: Session, problem: str | None, status: str = "incorrect") -> None:
    """End the case on all ranks when one has a problem.

    Raises:
        CaseError: It has.
    """
    found = session.control.first_problem(problem)
    if found is not None:
        raise CaseError(status, found)
