"""Trains one technique of a block: the family's loop, with its clock, its counts and its copies of weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paceline.families.training.api.absence import Absence
from paceline.families.training.api.pipeline.executor import Pass
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.carried import Carried, KernelCounts
from paceline.families.training.core.memory import state_bytes
from paceline.families.training.core.seat import Seat
from paceline.families.training.core.unchanged import passes_of, shares_sequences
from paceline.families.training.ops.checkpoint.course import Course
from paceline.families.training.ops.data_parallel.returning import Return
from paceline.families.training.ops.data_parallel.rider import Rider
from paceline.families.training.ops.expert_parallel.owners import Owners
from paceline.families.training.ops.fine_tune.ledger import Ledger
from paceline.families.training.ops.sequence_parallel.flops import attention_flops

_clock_ns = time.perf_counter_ns
_sleep = time.sleep

PARTS = ("compute_s", "gradients_s", "update_s", "parameters_s")


@dataclass(slots=True, kw_only=True)
class Trained:
    """What training left on this rank."""

    weights: list[list[Tensor]] = field(default_factory=list)
    """The weights at each evaluation, the untrained ones first."""
    evaluated: list[int] = field(default_factory=list)
    """Steps that had been done at each evaluation."""
    seconds: list[float] = field(default_factory=list)
    """Training time at each evaluation."""
    taken: list[float] = field(default_factory=list)
    """Steps in which this rank had taken part at each evaluation."""
    sent: list[float] = field(default_factory=list)
    """Payload bytes that this rank had sent at each evaluation."""
    windows: list[list[float]] = field(default_factory=list)
    """For each window: seconds, those of the four parts, those inside the communicator, and the mean loss."""
    sent_bytes: float = 0.0
    sent_to: list[float] = field(default_factory=list)
    """To each rank."""
    peak_bytes: float = 0.0
    pass_bytes: list[float] = field(default_factory=list)
    """Those that it sent to each rank in forward and backward."""
    attention_flops: float | None = None
    """Operations of attention in one forward and backward; None where ranks do not share sequences."""
    messages: float = 0.0
    row_messages: float = 0.0
    """Those that hold at least a token's row."""
    backend_calls: int = 0
    backend_bytes: float = 0.0
    """Of the tensors that it handed to the backend's own collectives."""
    carried: Carried = field(default_factory=Carried)
    """What its own interfaces have sent, by the kernel."""
    device_peak: float | None = None
    """Most bytes that the device's allocator had given out at once; None on the host."""
    state: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    """This rank's loss in every step; NaN where it lies on another rank."""
    took: list[bool] = field(default_factory=list)
    """Whether this rank took part in each step."""
    sees_loss: bool = True
    """Whether it had one in every step."""
    passes: list[list[Pass]] = field(default_factory=list)
    """Of each step after which memory is counted, which a technique cannot know; none where it is no pipeline."""
    diagnoses: dict[str, list[float]] = field(default_factory=dict)
    """What the technique found out about every step."""


class Loop:
    """The loop over a technique's steps.

    Args:
        seat: The technique.
        batches: This rank's sequences, (steps, rows, context + 1).
        window: Steps of one sample of throughput.
        evaluations: Number of copies of the weights beside the untrained ones.
        count_after: Steps after whose exchange of gradients memory is counted; a technique cannot know them.
        extra_s: Seconds by which this rank's computation is longer, for a slow rank.
        ledger: Takes note of the codes that ranks share; None for techniques that share gradients or weights.
        owners: Looks after every step at who owns which weights, where a technique may change that.
        course: Has checkpoints saved between steps; None where there are none.
        absence: Who leaves and comes back; None where all stay.
        rider: Takes notes of gradients before evaluations; None where nothing rides along.
    """

    def __init__(
        self,
        seat: Seat,
        batches: Tensor,
        *,
        window: int,
        evaluations: int,
        count_after: frozenset[int],
        extra_s: float = 0.0,
        ledger: Ledger | None = None,
        owners: Owners | None = None,
        course: Course | None = None,
        absence: Absence | None = None,
        rider: Rider | None = None,
    ) -> None:
        self.seat = seat
        self.session = seat.session
        self.replica = seat.replica
        self.batches = batches
        self.window = window
        steps = len(batches)
        self.evaluate_after = {round(steps * (i + 1) / evaluations) for i in range(evaluations)}
        self.count_after = count_after
        self.extra_s = extra_s
        self.ledger = ledger
        self.trained = Trained(pass_bytes=[0.0] * seat.session.world_size)
        self.owners = owners
        self.course = course
        self.absence = absence
        self.back = Return(seat.session, absence, seat.weights) if absence else None
        self.rider = rider
        self._parts = [0] * len(PARTS)
        self._losses: list[Tensor] = []
        self._excluded_ns = 0
        self._kernel = KernelCounts(seat)

    def run(self) -> Trained:
        """Train all steps."""
        if self.session.device.torch_type != "cpu":
            torch.accelerator.reset_peak_memory_stats()
        for _ in self.windows():
            pass
        if self.session.device.torch_type != "cpu":
            self.trained.device_peak = float(torch.accelerator.max_memory_allocated())
        return self.trained

    def windows(self) -> Iterator[range]:
        """Train window by window; yield the steps of each when it has ended. What is done meanwhile is not counted."""
        trained, comm, session = self.trained, self.replica.comm, self.session
        self._copy(0, 0.0, 0.0)
        self._look(None)
        comm.counters.reset()
        comm.take_split()
        session.control.barrier()
        self._kernel.begin()
        session.control.barrier()
        session.device.synchronize()
        steps = len(self.batches)
        self._excluded_ns, elapsed_ns, sent = 0, 0, 0.0
        for first in range(0, steps, self.window):
            window = range(first, min(first + self.window, steps))
            opened, excluded = _clock_ns(), self._excluded_ns
            for step in window:
                comm.begin_call()
                self._step(step, last=step == steps - 1)
                total = float(sum(comm.counters.sent_bytes))
                trained.peak_bytes, sent = max(trained.peak_bytes, total - sent), total
                if step + 1 in self.evaluate_after:
                    session.device.synchronize()
                    copying = _clock_ns()
                    spent = elapsed_ns + copying - opened - (self._excluded_ns - excluded)
                    self._copy(step + 1, spent * 1e-9, sent)
                    self._excluded_ns += _clock_ns() - copying
            session.device.synchronize()
            own_ns = _clock_ns() - opened - (self._excluded_ns - excluded)
            elapsed_ns += own_ns
            self._close_window(own_ns, comm.take_split())
            yield window
        self.seat.check_left()
        trained.sent_bytes = sent
        trained.sent_to = list(map(float, comm.counters.sent_bytes))
        trained.messages = float(sum(comm.counters.sent_messages))
        trained.row_messages = float(comm.counters.long_messages)
        trained.backend_calls = comm.counters.backend_calls
        trained.backend_bytes = float(comm.counters.backend_bytes)
        session.control.barrier()
        trained.carried = self._kernel.end()
        if shares_sequences(self.replica):
            trained.attention_flops = self._attention_flops()

    def _attention_flops(self) -> float:
        """Count a forward and backward more, when all else has been counted."""
        sequences_BS = self.batches[-1].to(self.replica.task.device).long()

        def run() -> None:
            with self.seat.watch():
                self.replica.comm.begin_call()
                self.replica.forward_backward(sequences_BS)

        found = attention_flops(run)
        self.seat.check_left()
        return found

    def _step(self, step: int, *, last: bool) -> None:
        replica = self.replica
        self.trained.took.append(not self._is_away(step) and not self._rests(step, last=last))
        if not self.trained.took[-1]:
            self._leave_out(step)
            return
        sequences_BS = self.batches[step].to(replica.task.device).long()
        keeping = nullcontext() if self.ledger is None else self.ledger.watch()
        # looked up before a technique runs: what it replaces and puts back within a step moves none of it
        clock, between, course = _clock_ns, self.session.guard.between, self.course
        counted, rides, sent = step in self.count_after, self._rides(step), replica.comm.counters.sent_bytes
        if rides:
            self._listen()
        before = sent[:]
        with self.seat.watch():
            with keeping:
                begin = clock()
                if self.extra_s:
                    _sleep(self.extra_s)
                replica.set_rate(replica.task.rate(step))
                loss = replica.forward_backward(sequences_BS)
                computed = clock()
            after = sent[:]
            if counted or rides:
                with between():
                    self._look_after_backward(step)
            with keeping:
                exchanging = clock()
                replica.exchange_gradients(step)
                exchanged = clock()
            if counted or course is not None:
                with between():
                    self._look_before_update(step)
            updating = clock()
            replica.update(step)
            updated = clock()
            replica.exchange_parameters(step)
            if last:
                replica.finish()
            said = self.seat.diagnosis()
            ended = clock()
        self.trained.pass_bytes = [
            n + b - a for n, a, b in zip(self.trained.pass_bytes, before, after, strict=True)
        ]
        self._look(step)
        if course is not None:
            self._excluded_ns += course.after(step)
        spans = (computed - begin, exchanged - exchanging, updated - updating, ended - updated)
        self._note(spans, loss, said)

    def _note(self, spans: Sequence[int], loss: Tensor | None, said: dict[str, float]) -> None:
        """Note a step's parts in nanoseconds, its loss, and what the technique found out."""
        for part, spent in enumerate(spans):
            self._parts[part] += spent
        self._losses.append(torch.tensor(math.nan) if loss is None else loss)
        self.trained.sees_loss &= loss is not None
        for name, value in said.items():
            self.trained.diagnoses.setdefault(name, []).append(value)

    def _leave_out(self, step: int) -> None:
        """Note a step in which this rank takes no part."""
        self._losses.append(torch.tensor(math.nan))
        if step in self.count_after:
            self._count_memory()
        if self._rides(step):
            self._ride(present=False)
        self._look(step)

    def _is_away(self, step: int) -> bool:
        """Tell the technique where the members change with a step, and return whether this rank takes no part in it."""
        if self.absence is None:
            return False
        if self.absence.changes(step):
            with self.seat.watch():
                self.replica.change_members(step, self.absence.members(step, self.session.world_size))
        return self.absence.away(self.session.rank, step)

    def _rests(self, step: int, *, last: bool) -> bool:
        """Return whether the technique leaves a step out on this rank, and let it end its round all the same."""
        replica, begin = self.replica, _clock_ns()
        if type(replica).rests is Replica.rests:
            return False
        with self.seat.watch():
            if not replica.rests(step):
                return False
            replica.exchange_parameters(step)
            if last:
                replica.finish()
        self._parts[PARTS.index("parameters_s")] += _clock_ns() - begin
        return True

    def _rides(self, step: int) -> bool:
        """Return whether the gradients of a step are noted: one that comes before an evaluation."""
        return self.rider is not None and step + 1 in self.evaluate_after

    def _listen(self) -> None:
        assert self.rider is not None
        self.rider.listen()

    def _ride(self, *, present: bool) -> None:
        assert self.rider is not None
        self.session.device.synchronize()  # backward is the step's
        riding = _clock_ns()
        gradients = [p.grad for p in self.replica.model.parameters()] if present else [None]
        whole = [g for g in gradients if g is not None] if None not in gradients else None
        self._excluded_ns += self.rider.note(whole) + _clock_ns() - riding

    def _look_after_backward(self, step: int) -> None:
        if step in self.count_after and (passes := passes_of(self.replica)):
            self.trained.passes.append(passes)
        if self._rides(step):
            self._ride(present=True)

    def _look_before_update(self, step: int) -> None:
        if step in self.count_after:
            self._count_memory()
        if self.course is not None:
            self.course.before_update(step)

    def _count_memory(self) -> None:
        counting = _clock_ns()
        for kind, size in state_bytes(self.replica).items():
            self.trained.state[kind] = max(self.trained.state.get(kind, 0.0), size)
        self._excluded_ns += _clock_ns() - counting

    def _look(self, step: int | None) -> None:
        """Note the codes that ranks shared in a step, and who owns which weights now."""
        looking = _clock_ns()
        if self.ledger is not None and step is not None:
            self.ledger.note(step, range(self.session.world_size))
        if self.owners is not None:
            with self.seat.watch():
                shares = self.replica.shares()
            self.owners.look(shares)
        if self.back is not None and step is not None:
            self.back.look(step)
        self._excluded_ns += _clock_ns() - looking

    def _close_window(self, elapsed_ns: int, split: dict[str, float]) -> None:
        losses = torch.stack([x.reshape(()) for x in self._losses]).double()
        self.trained.losses += losses.tolist()
        took = self.trained.took[-len(losses) :]
        present = sum(took)
        if present < len(losses):
            losses = losses[took]
        communicate = split.get("communicate", 0.0)
        row = [elapsed_ns * 1e-9, *(p * 1e-9 for p in self._parts), communicate, float(losses.mean())]
        self.trained.windows.append([*row, float(present), float(len(self._losses))])
        self._parts = [0] * len(PARTS)
        self._losses = []

    def _copy(self, steps: int, seconds: float, sent: float) -> None:
        trained = self.trained
        with (
            self._kernel.left_out()
        ):  # weights that lie in shares are gathered to be copied, which no count may show
            weights = self.seat.weights()
        trained.weights.append([w.clone() for w in weights])
        trained.evaluated.append(steps)
        trained.seconds.append(seconds)
        trained.taken.append(float(sum(self.trained.took)))
        trained.sent.append(sent)
