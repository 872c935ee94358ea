"""Trains one technique of a block: the family's loop, with its clock, its counts and its copies of weights.

``Setting`` is what all techniques of a block share, ``Seat`` a technique's replica behind its fences, ``Loop`` the loop
over its steps, ``Trained`` what that leaves on a rank.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from paceline.families.training.corpus import Corpus
from paceline.families.training.memory import state_bytes
from paceline.families.training.model import Transformer, loss_and_gradients
from paceline.families.training.replica import Replica, Share, Task
from paceline.families.training.sizes import SIZES
from paceline.families.training.torch_parallel import local_part
from paceline.worker.namespace import read_counters
from paceline.worker.session import (
    Block,
    Case,
    ContractBreachError,
    Session,
)
from paceline.worker.timing import median

_clock_ns = time.perf_counter_ns
_sleep = time.sleep

LIBRARIES = frozenset({"paceline.baselines.training.ddp", "paceline.baselines.training.fsdp"})
"""Techniques that stand for PyTorch's own modules, which use the process group themselves."""
CALIBRATION_STEPS = 7
DIAGNOSES = ("loss_dispersion", "gradient_norm_dispersion", "gradient_cosine")
PARTS = ("compute_s", "gradients_s", "update_s", "parameters_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share: model, data, and the seeds of both."""

    corpus: Corpus
    size: str
    context: int
    batch_size: int
    steps: int
    optimizer: str
    peak_rate: float
    warmup_steps: int
    device: torch.device
    model_seed: int
    data_seed: int
    shared_seed: int
    """What techniques are told: it has nothing to do with the data."""

    def model(self) -> Transformer:
        """Return the model with its initial weights."""
        with torch.device(self.device):
            model = Transformer(SIZES[self.size], vocabulary=self.corpus.vocabulary, context=self.context)
        model.initialise(self.model_seed)
        return model

    def task(self, *, rank: int, world_size: int) -> Task:
        """Return one rank's task, with a model of its own."""
        return Task(
            model=self.model(),
            rank=rank,
            world_size=world_size,
            device=self.device,
            seed=self.shared_seed,
            steps=self.steps,
            optimizer_name=self.optimizer,
            peak_rate=self.peak_rate,
            warmup_steps=self.warmup_steps,
        )

    def batch(self, step: int, rows: range) -> Tensor:
        """Return some rows of a step's global batch as int16, (rows, context + 1)."""
        drawn = self.corpus.train(self.data_seed, step, rows, self.batch_size, self.context + 1)
        return torch.from_numpy(drawn).to(torch.int16)


@dataclass(slots=True, kw_only=True)
class Trained:
    """What training left on this rank."""

    weights: list[list[Tensor]] = field(default_factory=list)
    """The weights at each evaluation, the untrained ones first."""
    evaluated: list[int] = field(default_factory=list)
    """Steps that had been done at each evaluation."""
    seconds: list[float] = field(default_factory=list)
    """Training time at each evaluation."""
    sent: list[float] = field(default_factory=list)
    """Payload bytes that this rank had sent at each evaluation."""
    windows: list[list[float]] = field(default_factory=list)
    """For each window: seconds, those of the four parts, those inside the communicator, and the mean loss."""
    sent_bytes: float = 0.0
    peak_bytes: float = 0.0
    messages: float = 0.0
    backend_calls: int = 0
    kernel_bytes: float | None = None
    """What this rank's own interface for data has sent; None where others share it."""
    around_bytes: float = 0.0
    """What its interface for the harness's messages has sent meanwhile."""
    state: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    """This rank's loss in every step."""
    diagnoses: dict[str, list[float]] = field(default_factory=dict)
    """What the technique found out about every step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A technique's replica, and what the harness lets it do."""

    session: Session
    replica: Replica
    library: bool
    diagnoses: bool

    def watch(self) -> AbstractContextManager[None]:
        """Return the fences for its code."""
        return self.session.guard.watch(library=self.library)

    def weights(self) -> list[Tensor]:
        """Return the weights that it would ship.

        Raises:
            ContractBreachError: It sent something through the communicator, or changed its model, to answer.
        """
        comm, replica = self.replica.comm, self.replica
        before = [_bits(p).clone() for p in replica.model.parameters()]
        sent = sum(comm.counters.sent_messages) + comm.counters.backend_calls
        with self.watch():
            shares = replica.shares()
            found = [w.detach() for w in replica.weights()] if shares is None else []
        if sent != sum(comm.counters.sent_messages) + comm.counters.backend_calls:
            raise ContractBreachError("it sent messages when asked for its weights")
        after = map(_bits, replica.model.parameters())
        if not all(torch.equal(x, y) for x, y in zip(before, after, strict=True)):
            raise ContractBreachError("it changed its model when asked for its weights")
        answers = self.session.control.gather_text("whole" if shares is None else "shares")
        if len(set(answers)) > 1:
            raise ContractBreachError("some ranks have whole weights, others shares")
        return found if shares is None else self._gathered(shares)

    def _gathered(self, shares: Sequence[Share]) -> list[Tensor]:
        """Return whole weights from what each rank owns of them, gathered by the harness.

        Raises:
            CaseError: Some element has no owner, or several: their sum would be an exchange. Or a rank holds
                parameters in whole, which shares would hide from the comparison of replicas.
        """
        parameters = list(self.replica.model.parameters())

        def make() -> tuple[Tensor, Tensor]:
            whole = [torch.zeros(p.numel(), dtype=p.dtype) for p in parameters]
            owners = [torch.zeros(p.numel()) for p in parameters]
            for number, start, values in shares:
                whole[number][start : start + values.numel()] = values.detach().cpu()
                owners[number][start : start + values.numel()] += 1
            return torch.cat(whole), torch.cat(owners)

        vector, owned = self.session.on_all_ranks(make)
        self.session.control.sum_in_place(owned)
        if not bool((owned == 1).all()):
            raise ContractBreachError("its ranks' shares overlap, or leave gaps")
        if any(p.untyped_storage().nbytes() for p in parameters):
            raise ContractBreachError("it owns shares of parameters that it holds in whole")
        self.session.control.sum_in_place(vector)
        ends = list(accumulate(p.numel() for p in parameters))
        return [
            vector[e - p.numel() : e].view(p.shape).to(p.device)
            for e, p in zip(ends, parameters, strict=True)
        ]

    def step(self, sequences_BS: Tensor, step: int) -> None:
        """Run one step without a clock."""
        replica = self.replica
        with self.watch():
            replica.comm.begin_call()
            replica.set_rate(replica.task.rate(step))
            replica.forward_backward(sequences_BS.to(replica.task.device).long())
            replica.exchange_gradients(step)
            replica.update(step)
            replica.exchange_parameters(step)
            self.diagnosis()

    def diagnosis(self) -> dict[str, float]:
        """Return what a technique that says so finds out about ranks; call it inside ``watch``, on the clock.

        Raises:
            ContractBreachError: It gives other figures than it should, or one that is not finite.
        """
        if not self.diagnoses:
            return {}
        found = {name: float(value) for name, value in self.replica.diagnosis().items()}
        if set(found) != set(DIAGNOSES) or not all(map(math.isfinite, found.values())):
            raise ContractBreachError(
                f"diagnosis gives {found}, and not finite figures of {', '.join(DIAGNOSES)}"
            )
        return found

    def finish(self) -> None:
        """Complete what is under way, and make sure that nothing is."""
        with self.watch():
            self.replica.finish()
        self.check_left()

    def check_left(self) -> None:
        """Look for what a technique left behind.

        Raises:
            ContractBreachError: Transfers, which the next technique would receive.
        """
        comm = self.replica.comm
        if comm.num_pending:
            raise ContractBreachError("transfers were still in flight when training had ended")
        counts = comm.counters
        rows = self.session.control.gather(
            [list(map(float, counts.sent_bytes)), list(map(float, counts.received_bytes))]
        )
        size = range(len(rows))
        if any(rows[i][0][j] != rows[j][1][i] for i in size for j in size):
            raise ContractBreachError("what ranks sent and what they received does not fit")


def _bits(parameter: Tensor) -> Tensor:
    """Return this rank's part of a parameter as bytes: NaN equals itself there; nothing where its storage is freed."""
    part = local_part(parameter).detach()
    if part.numel() and not part.untyped_storage().nbytes():
        return torch.empty(0, dtype=torch.uint8)
    return part.contiguous().view(torch.uint8)


def make_seat(session: Session, block: Block, case: Case, setting: Setting) -> Seat:
    """Make a technique, on all ranks or on none.

    Raises:
        CaseError: It does not support the point, broke its contract, or failed, on some rank.
    """
    library = case.module in LIBRARIES

    def make() -> Seat:
        task = setting.task(rank=session.rank, world_size=session.world_size)
        loaded = session.loaded(case)
        with session.guard.watch(building=library, library=library):
            replica = loaded.factory(task, session.comm(), **case.options)
        if not isinstance(replica, Replica):
            raise ContractBreachError("it is no Replica (paceline.families.training.replica)")
        assert loaded.info is not None
        diagnoses = bool(loaded.info.properties.get("diagnoses"))
        return Seat(session=session, replica=replica, library=library, diagnoses=diagnoses)

    return session.on_all_ranks(make)


def prepare_torch(device: torch.device) -> None:
    """Let torch's optimisers do now what they do once in a process, before any technique is watched."""
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        weight = torch.nn.Parameter(torch.zeros(1, device=device))
        weight.grad = torch.zeros_like(weight)
        kind([weight], lr=0.1).step()


def compute_seconds(setting: Setting, sequences_BS: Tensor) -> float:
    """Return the median seconds of forward and backward of one rank's share, without any technique."""
    model = setting.model()
    seconds = []
    for _ in range(CALIBRATION_STEPS):
        begin = _clock_ns()
        loss_and_gradients(model, sequences_BS.to(setting.device).long())
        if setting.device.type != "cpu":
            torch.accelerator.synchronize()
        seconds.append((_clock_ns() - begin) * 1e-9)
    return median(seconds)


class Loop:
    """The loop over a technique's steps.

    Args:
        seat: The technique.
        batches: This rank's sequences, (steps, rows, context + 1).
        window: Steps of one sample of throughput.
        evaluations: Number of copies of the weights beside the untrained ones.
        count_after: Steps after whose exchange of gradients memory is counted; a technique cannot know them.
        extra_s: Seconds by which this rank's computation is longer, for a slow rank.
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
        self.trained = Trained()
        self._parts = [0] * len(PARTS)
        self._losses: list[Tensor] = []
        self._excluded_ns = 0
        self._kernel_excluded = 0
        self._around_excluded = 0

    def run(self) -> Trained:
        """Train all steps."""
        for _ in self.windows():
            pass
        return self.trained

    def windows(self) -> Iterator[range]:
        """Train window by window; yield the steps of each when it has ended. What is done meanwhile is not counted."""
        trained, comm, session = self.trained, self.replica.comm, self.session
        self._copy(0, 0.0, 0.0)
        comm.counters.reset()
        comm.take_split()
        session.control.barrier()
        kernel_before, around_before = (
            self._carried(session.interface),
            self._carried(session.control_interface),
        )
        self._kernel_excluded = self._around_excluded = 0
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
        trained.messages = float(sum(comm.counters.sent_messages))
        trained.backend_calls = comm.counters.backend_calls
        session.control.barrier()
        kernel_after = self._carried(session.interface)
        if kernel_before is not None and kernel_after is not None:
            trained.kernel_bytes = float(kernel_after - kernel_before - self._kernel_excluded)
        around_after = self._carried(session.control_interface)
        if around_before is not None and around_after is not None:
            trained.around_bytes = float(around_after - around_before - self._around_excluded)

    def _step(self, step: int, *, last: bool) -> None:
        replica = self.replica
        sequences_BS = self.batches[step].to(replica.task.device).long()
        with self.seat.watch():
            begin = _clock_ns()
            if self.extra_s:
                _sleep(self.extra_s)
            replica.set_rate(replica.task.rate(step))
            loss = replica.forward_backward(sequences_BS)
            computed = _clock_ns()
            replica.exchange_gradients(step)
            exchanged = _clock_ns()
        if step in self.count_after:
            self._count_memory()
        with self.seat.watch():
            updating = _clock_ns()
            replica.update(step)
            updated = _clock_ns()
            replica.exchange_parameters(step)
            if last:
                replica.finish()
            said = self.seat.diagnosis()
            ended = _clock_ns()
        spans = (computed - begin, exchanged - computed, updated - updating, ended - updated)
        for part, spent in enumerate(spans):
            self._parts[part] += spent
        self._losses.append(loss)
        for name, value in said.items():
            self.trained.diagnoses.setdefault(name, []).append(value)

    def _count_memory(self) -> None:
        counting = _clock_ns()
        for kind, size in state_bytes(self.replica).items():
            self.trained.state[kind] = max(self.trained.state.get(kind, 0.0), size)
        self._excluded_ns += _clock_ns() - counting

    def _close_window(self, elapsed_ns: int, split: dict[str, float]) -> None:
        losses = torch.stack([x.reshape(()) for x in self._losses]).double()
        self.trained.losses += losses.tolist()
        communicate = split.get("communicate", 0.0)
        row = [elapsed_ns * 1e-9, *(p * 1e-9 for p in self._parts), communicate, float(losses.mean())]
        self.trained.windows.append([*row, float(len(self._losses))])
        self._parts = [0] * len(PARTS)
        self._losses = []

    def _copy(self, steps: int, seconds: float, sent: float) -> None:
        trained = self.trained
        data, around = self._counts()
        weights = self.seat.weights()
        data_after, around_after = self._counts()
        if self.seat.library:
            self._kernel_excluded += data_after - data
        self._around_excluded += around_after - around
        trained.weights.append([w.clone() for w in weights])
        trained.evaluated.append(steps)
        trained.seconds.append(seconds)
        trained.sent.append(sent)

    def _counts(self) -> tuple[int, int]:
        """Return the kernel's counts for data and for the harness's messages, when nobody is on the way.

        Weights that lie in shares are gathered to be copied, which no count may show.
        """
        session = self.session
        session.control.barrier()
        found = self._carried(session.interface) or 0, self._carried(session.control_interface) or 0
        session.control.barrier()
        return found

    def _carried(self, interface: str | None) -> int | None:
        """Return what one of this rank's own interfaces has sent; None where others share it, or there is none."""
        if interface is None or self.session.interface_shared:
            return None
        return read_counters(interface).tx_bytes


def local_batches(setting: Setting, session: Session, *, corrupt: bool = False, alike: float = 0.0) -> Tensor:
    """Draw this rank's sequences of all steps, (steps, rows, context + 1), as int16.

    Args:
        setting: The point's.
        session: The rank.
        corrupt: From half of the run on, symbols are drawn at random instead.
        alike: Share of the sequences of a step in which all ranks read rank 0's.
    """
    rows = range(session.rank, setting.batch_size, session.world_size)
    found = torch.stack([setting.batch(step, rows) for step in range(setting.steps)])
    shared = round(alike * len(rows))
    if shared and session.rank:
        first = range(0, setting.batch_size, session.world_size)
        for step in range(setting.steps):
            found[step, :shared] = setting.batch(step, first)[:shared]
    if corrupt:
        bad = found[setting.steps // 2 :]
        generator = torch.Generator().manual_seed(setting.data_seed)
        bad.copy_(torch.randint(setting.corpus.vocabulary, bad.shape, generator=generator))
    return found
