"""Trains one technique of a block: the family's loop, with its clock, its counts and its copies of weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from paceline.families.training.api.absence import Absence
from paceline.families.training.api.own import on_device
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.loop.callback import Callback, overrides
from paceline.families.training.core.loop.carried import KernelCounts
from paceline.families.training.core.loop.trained import PARTS, Trained
from paceline.families.training.core.memory.held import state_bytes
from paceline.families.training.core.proofs.sandbox import Sandbox

_clock_ns = time.perf_counter_ns
_sleep = time.sleep


class Loop:
    """The loop over a technique's steps.

    Args:
        sandbox: The technique.
        batches: This rank's sequences, (steps, rows, context + 1).
        window: Steps of one sample of throughput.
        evaluate_after: Numbers of steps after which weights are copied, beside the untrained ones.
        count_after: Steps after whose exchange of gradients memory is counted; a technique cannot know them.
        extra_s: Seconds by which this rank's computation is longer, for a slow rank.
        absence: Who leaves and comes back; None where all stay.
        callbacks: What the operation has done beside the steps.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        batches: Tensor,
        *,
        window: int,
        evaluate_after: frozenset[int],
        count_after: frozenset[int],
        extra_s: float = 0.0,
        absence: Absence | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.sandbox = sandbox
        self.session = sandbox.session
        self.replica = sandbox.replica
        self.batches = batches
        self.window = window
        self.evaluate_after = evaluate_after
        self.count_after = count_after
        self.extra_s = extra_s
        self.trained = Trained(pass_bytes=[0.0] * sandbox.session.world_size)
        self.absence = absence
        self.callbacks = callbacks
        # Sorted out once: a step must not ask callbacks that do nothing, for each question is on the clock.
        self._around = [c for c in callbacks if overrides(c, "around_passes")]
        self._looking = [c for c in callbacks if overrides(c, "look")]
        self._after = [c for c in callbacks if overrides(c, "after_step")]
        assert len(self._around) <= 1, "one context is used twice in a step"
        self._marks = self.session.device.marks()
        """In the device's stream, which goes on when the host's calls have returned; None where none does."""
        self._marked: list[tuple[int, Any, Any]] = []
        """Parts of the window's steps between marks, whose times are read once the device is idle."""
        self._parts = [0] * len(PARTS)
        self._losses: list[Tensor] = []
        self._excluded_ns = 0
        self._kernel = KernelCounts(sandbox)

    def run(self) -> Trained:
        """Train all steps."""
        for _ in self.windows():
            pass
        return self.trained

    def _note_peak(self) -> None:
        """Note the most that the device's allocator gave out since the last note, and begin anew."""
        if self.session.device.torch_type == "cpu":
            return
        reached = float(torch.accelerator.max_memory_allocated())
        self.trained.device_peak = max(self.trained.device_peak or 0.0, reached)
        torch.accelerator.reset_peak_memory_stats()

    def windows(self) -> Iterator[range]:
        """Train window by window; yield the steps of each when it has ended. What is done meanwhile is not counted."""
        trained, comm, session = self.trained, self.replica.comm, self.session
        self._note_peak()
        trained.device_peak = None  # what was reached before is the proofs'
        # The untrained weights, before counters are reset: what gathering them sends is no training.
        self._copy(0, 0.0, 0.0)
        self._look(None)
        comm.counters.reset()
        comm.splitting(True)
        comm.take_split()
        session.control.barrier()
        self._kernel.begin()
        # Around the reading of the kernel's counters, so that no rank's first message is missed or counted early.
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
                # After each step: peak_bytes needs the step that sends most, whatever a window's mean is.
                total = float(sum(comm.counters.sent_bytes))
                trained.peak_bytes, sent = max(trained.peak_bytes, total - sent), total
                if step + 1 in self.evaluate_after:
                    session.device.synchronize()
                    copying = _clock_ns()
                    session.guard.check()
                    # Training time alone: copies, counts of memory and callbacks' time are taken off.
                    spent = elapsed_ns + copying - opened - (self._excluded_ns - excluded)
                    self._copy(step + 1, spent * 1e-9, sent)
                    self._excluded_ns += _clock_ns() - copying
            session.device.synchronize()
            # After the device is idle: a window ends with its own work and not with what was merely issued.
            own_ns = _clock_ns() - opened - (self._excluded_ns - excluded)
            elapsed_ns += own_ns
            session.guard.check()  # of all that is sealed: in a step it would be on the clock
            self._close_window(own_ns, comm.take_split())
            yield window
        self._note_peak()
        self.sandbox.check_left()
        trained.sent_bytes = sent
        self._note_counters()
        session.control.barrier()
        trained.carried = self._kernel.end()
        for callback in self.callbacks:
            callback.ended()

    def _note_counters(self) -> None:
        """Note what was sent in all steps."""
        trained, counters = self.trained, self.replica.comm.counters
        trained.sent_to = list(map(float, counters.sent_bytes))
        trained.messages = float(sum(counters.sent_messages))
        trained.backend_calls = counters.backend_calls
        trained.backend_bytes = float(counters.backend_bytes)

    def _step(self, step: int, *, last: bool) -> None:
        replica = self.replica
        self.trained.took.append(not self._is_away(step) and not self._rests(step, last=last))
        if not self.trained.took[-1]:
            self._leave_out(step)
            return
        sequences_BS = on_device(self.batches[step], replica.task.device)
        keeping = self._around[0].around_passes() if self._around else nullcontext()
        # looked up before a technique runs: what it replaces and puts back within a step moves none of it
        clock = _clock_ns if self._marks is None else self._marks.mark
        between, counted = self.session.guard.between, step in self.count_after
        after_backward = [c for c in self.callbacks if step in c.stops_after_backward]
        before_update = [c for c in self.callbacks if step in c.stops_before_update]
        sent = replica.comm.counters.sent_bytes
        for callback in after_backward:
            callback.before_step(step)
        before = sent[:]  # by receiver: pass_link_bytes is of the pair that carries most
        with self.sandbox.watch(in_time=True):
            with keeping:
                begin = clock()
                if self.extra_s:
                    self._compute_longer()  # in this span, as a slow rank's longer computation would be
                replica.set_rate(replica.task.rate(step))
                loss = replica.forward_backward(sequences_BS)
                computed = clock()
            after = sent[:]
            if counted or after_backward:
                with between():  # judges first what the technique could have replaced
                    self._look_after_backward(step, after_backward)
            with keeping:
                exchanging = clock()
                replica.exchange_gradients(step)
                exchanged = clock()
            if counted or before_update:
                with between():
                    self._look_before_update(step, before_update)
            updating = clock()
            replica.update(step)
            updated = clock()
            replica.exchange_parameters(step)
            if last:
                replica.finish()
            said = self.sandbox.diagnosis()  # on the clock: it is part of what the technique costs
            ended = clock()
        sums = zip(self.trained.pass_bytes, before, after, strict=True)
        self.trained.pass_bytes = [n + b - a for n, a, b in sums]
        self._look(step)
        spans = ((begin, computed), (exchanging, exchanged), (updating, updated), (updated, ended))
        self._note(spans, loss, said)
        for callback in self._after:
            self._excluded_ns += callback.after_step(step)

    def _note(self, spans: Sequence[tuple[Any, Any]], loss: Tensor | None, said: dict[str, float]) -> None:
        """Note where a step's parts begin and end, its loss, and what the technique found out."""
        for part, (begin, end) in enumerate(spans):
            self._book(part, begin, end)
        # Tensors and not numbers: reading each would wait for the device in every step.
        self._losses.append(torch.tensor(math.nan) if loss is None else loss)
        self.trained.sees_loss &= loss is not None
        for name, value in said.items():
            self.trained.diagnoses.setdefault(name, []).append(value)

    def _compute_longer(self) -> None:
        # A device goes on with what was issued before while the host sleeps: it must be idle first.
        self.session.device.synchronize()
        _sleep(self.extra_s)

    def _book(self, part: int, begin: Any, end: Any) -> None:
        if self._marks is None:
            self._parts[part] += end - begin
        else:
            self._marked.append((part, begin, end))

    def _leave_out(self, step: int) -> None:
        """Note a step in which this rank takes no part."""
        # NaN keeps one entry a step; the window's mean leaves steps out in which the rank took no part.
        self._losses.append(torch.tensor(math.nan))
        if step in self.count_after:
            self._count_memory()
        for callback in self.callbacks:
            if step in callback.stops_after_backward:
                self._excluded_ns += callback.left_out(step)
        self._look(step)

    def _is_away(self, step: int) -> bool:
        """Tell the technique where the members change with a step, and return whether this rank takes no part in it."""
        if self.absence is None:
            return False
        if self.absence.changes(step):
            with self.sandbox.watch():
                self.replica.change_members(step, self.absence.members(step, self.session.world_size))
        return self.absence.away(self.session.rank, step)

    def _rests(self, step: int, *, last: bool) -> bool:
        """Return whether the technique leaves a step out on this rank, and let it end its round all the same."""
        replica = self.replica
        # The base class never rests: without this every step of every technique would pay for the fences twice.
        if type(replica).rests is Replica.rests:
            return False
        clock = _clock_ns if self._marks is None else self._marks.mark
        begin = clock()
        with self.sandbox.watch():
            if not replica.rests(step):
                return False
            replica.exchange_parameters(step)
            if last:
                replica.finish()
        self._book(PARTS.index("parameters_s"), begin, clock())
        return True

    def _look_after_backward(self, step: int, callbacks: Sequence[Callback]) -> None:
        for callback in callbacks:
            self._excluded_ns += callback.after_backward(step)

    def _look_before_update(self, step: int, callbacks: Sequence[Callback]) -> None:
        if step in self.count_after:
            self._count_memory()
        for callback in callbacks:
            self._excluded_ns += callback.before_update(step)

    def _count_memory(self) -> None:
        counting = _clock_ns()
        for kind, size in state_bytes(self.replica).items():
            # The most of all looks: state may come and go with rounds.
            self.trained.state[kind] = max(self.trained.state.get(kind, 0.0), size)
        self._excluded_ns += _clock_ns() - counting

    def _look(self, step: int | None) -> None:
        """Let callbacks look at what a step has left."""
        looking = _clock_ns()
        for callback in self._looking:
            callback.look(step)
        self._excluded_ns += _clock_ns() - looking

    def _close_window(self, elapsed_ns: int, split: dict[str, float]) -> None:
        # Read once a window, after the device is idle.
        # Of one device: a step that a rank leaves out has no loss there, and none comes from the device.
        device = self.replica.task.device
        losses = torch.stack([x.reshape(()).to(device) for x in self._losses]).double()
        self.trained.losses += losses.tolist()
        for part, begin, end in self._marked:
            assert self._marks is not None
            self._parts[part] += round(self._marks.seconds(begin, end) * 1e9)
        self._marked = []
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
        # Weights that lie in shares are gathered to be copied, and compared with what they were: no count may show it.
        self._note_peak()
        peak = trained.device_peak
        with self._kernel.left_out():
            weights = self.sandbox.weights()
            # Copied, since a technique may return views of weights that it goes on training; to the host, since copies
            # of a large model would take the device's room.
            trained.weights.append([w.to("cpu", copy=True) for w in weights])
            del weights
        self._note_peak()
        trained.device_peak = peak
        trained.evaluated.append(steps)
        trained.seconds.append(seconds)
        trained.taken.append(float(sum(self.trained.took)))
        trained.sent.append(sent)
